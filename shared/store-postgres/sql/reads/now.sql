-- The server's clock.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now

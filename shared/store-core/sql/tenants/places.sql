-- Counts the taken places of the tenant $1, by the primary key.
SELECT count(*) FROM open_sends WHERE tenant = $1;

-- Takes places. Index: open_sends_pkey.
INSERT INTO open_sends (tenant, send_id, reserved_at)
SELECT $2::integer, e.send_id, coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
FROM unnest($3::uuid[]) AS e (send_id)
ON CONFLICT DO NOTHING

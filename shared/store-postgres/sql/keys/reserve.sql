-- Takes places of a key. Index: key_sends_pkey.
INSERT INTO key_sends (tenant, key_id, send_id, reserved_at)
SELECT
    $2::integer, $3::uuid, e.send_id, coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
FROM unnest($4::uuid[]) AS e (send_id)
ON CONFLICT DO NOTHING

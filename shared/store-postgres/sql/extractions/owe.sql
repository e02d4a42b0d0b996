-- Records an extraction; does nothing if it is already recorded.
-- Index: the primary key.
INSERT INTO extractions (tenant, send_id, session_id, pool, namespace, spec, due_at)
VALUES (
    $2::integer, $3::uuid, $4::uuid, $5::text, $6::text, $7::text,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) + $8::bigint
)
ON CONFLICT (tenant, send_id) DO NOTHING

-- Ends a pause. Index: the primary key.
UPDATE pauses p
SET resumed_at = coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE p.tenant = $2::integer AND p.kind = $3::text AND p.name = $4::text AND p.resumed_at IS NULL

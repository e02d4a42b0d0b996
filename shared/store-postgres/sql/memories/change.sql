-- Updates an entry whose text does not change.
-- Index: the primary key.
UPDATE memories
SET metadata = $3::text, updated_at = $4::bigint, expires_at = $5::bigint, source = $6::text
WHERE tenant = $1::integer AND memory_id = $2::uuid

-- Begins an attempt of an extraction.
-- Index: the primary key.
UPDATE extractions SET attempts = attempts + 1, token = $3::uuid, due_at = $4::bigint
WHERE tenant = $1::integer AND send_id = $2::uuid

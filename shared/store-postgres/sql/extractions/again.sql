-- Ends an attempt that is followed by another one, if it is still the extraction's own.
-- Index: the primary key.
UPDATE extractions SET due_at = $4::bigint, spec = $5::text, token = NULL
WHERE tenant = $1::integer AND send_id = $2::uuid AND token = $3::uuid

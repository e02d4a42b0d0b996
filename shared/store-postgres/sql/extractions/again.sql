-- Ends an attempt that will be followed by another one, if it is still the extraction's current
-- attempt.
-- Index: the primary key.
UPDATE extractions SET due_at = $4::bigint, spec = $5::text, token = NULL
WHERE tenant = $1::integer AND send_id = $2::uuid AND token = $3::uuid

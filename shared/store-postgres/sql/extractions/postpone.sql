-- Postpones an extraction.
-- Index: the primary key.
UPDATE extractions SET due_at = $3::bigint WHERE tenant = $1::integer AND send_id = $2::uuid

-- Ends an attempt that will be followed by another one, if it is still the extraction's current
-- attempt.
UPDATE extractions SET due_at = $4, spec = $5, token = NULL
WHERE tenant = $1 AND send_id = $2 AND token = $3;

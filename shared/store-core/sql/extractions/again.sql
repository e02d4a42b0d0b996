-- Ends an attempt that is followed by another one, if it is still the extraction's own.
UPDATE extractions SET due_at = $4, spec = $5, token = NULL
WHERE tenant = $1 AND send_id = $2 AND token = $3;

-- Begins an attempt of an extraction.
UPDATE extractions SET attempts = attempts + 1, token = $3, due_at = $4
WHERE tenant = $1 AND send_id = $2;

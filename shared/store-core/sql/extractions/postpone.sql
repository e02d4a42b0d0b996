-- Postpones an extraction.
UPDATE extractions SET due_at = $3 WHERE tenant = $1 AND send_id = $2;

-- Marks a final send as reported to its parent, unless it already is.
UPDATE sends SET reported_at = $3 WHERE tenant = $1 AND send_id = $2 AND reported_at IS NULL;

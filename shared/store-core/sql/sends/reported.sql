-- A final send was reported to its parent, unless it was before.
UPDATE sends SET reported_at = $3 WHERE tenant = $1 AND send_id = $2 AND reported_at IS NULL;

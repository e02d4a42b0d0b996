-- A final send was reported to its parent.
UPDATE sends SET reported_at = $3 WHERE tenant = $1 AND send_id = $2;

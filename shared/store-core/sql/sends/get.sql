-- A send, by id.
SELECT {send}
FROM sends
WHERE tenant = $1 AND send_id = $2;

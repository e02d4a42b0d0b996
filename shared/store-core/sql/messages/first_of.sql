-- The first message of a send from $3 on.
SELECT min(seq) AS seq FROM messages
WHERE tenant = $1 AND session_id = $2 AND seq >= $3 AND send_id = $4;

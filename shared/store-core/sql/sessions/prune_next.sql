-- The first message between two others that is not an answer to another message.
SELECT seq FROM messages
WHERE tenant = $1 AND session_id = $2 AND seq > $3 AND seq < $4 AND asked_at_seq IS NULL
ORDER BY seq
LIMIT 1;

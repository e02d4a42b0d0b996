-- Removes the steps of a send, the first of which is $4.
DELETE FROM steps WHERE tenant = $1 AND session_id = $2 AND send_id = $3 AND n >= $4;

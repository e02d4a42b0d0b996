-- Removes the session $2 from the line. By the primary key.
DELETE FROM seats WHERE tenant = $1 AND session_id = $2 AND waits_since IS NOT NULL;

-- Forgets a deleted session of which nothing is left.
DELETE FROM erasures WHERE tenant = $1 AND session_id = $2;

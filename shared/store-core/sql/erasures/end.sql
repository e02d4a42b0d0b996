-- Forgets a deleted session once nothing of it is left.
DELETE FROM erasures WHERE tenant = $1 AND session_id = $2;

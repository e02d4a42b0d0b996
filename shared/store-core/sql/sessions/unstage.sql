-- Ends the staging of a session whose messages are all stored: its hot row makes room for the real
-- one, and it is not to be removed any more.
DELETE FROM erasures WHERE tenant = $1 AND session_id = $2;
DELETE FROM session_hot WHERE tenant = $1 AND session_id = $2 AND lifecycle = 2;

-- Makes room for a session whose messages are all there: it is no longer to be removed.
DELETE FROM erasures WHERE tenant = $1 AND session_id = $2;
DELETE FROM session_hot WHERE tenant = $1 AND session_id = $2 AND lifecycle = 2;

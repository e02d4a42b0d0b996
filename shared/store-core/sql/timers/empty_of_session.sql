-- Replaces what the timers of a deleted session said, by timers_session.
UPDATE timers SET target = $3 WHERE tenant = $1 AND session_id = $2;

-- Cancels the timers of a session that is deleted at $3, by timers_session.
UPDATE timers
SET status = 'cancelled', due_at = NULL, fire_at = NULL, ended_at = $3, updated_at = $3
WHERE tenant = $1 AND session_id = $2 AND status IN ('armed', 'paused', 'dead');

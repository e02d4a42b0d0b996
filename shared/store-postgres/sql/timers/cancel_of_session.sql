-- Cancels the timers of a session that is about to be deleted. Timers are locked before hot rows,
-- as when they fire.
-- Index: timers_session.
UPDATE timers t SET
    status = 'cancelled', due_at = NULL, fire_at = NULL, ended_at = $3::bigint,
    updated_at = $3::bigint
WHERE t.tenant = $1::integer AND t.session_id = $2::uuid AND t.status IN ('armed', 'paused', 'dead')

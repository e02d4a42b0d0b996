-- Replaces what the timers of a session that is about to be deleted said.
-- Index: timers_session.
UPDATE timers t SET target = $3
WHERE t.tenant = $1::integer AND t.session_id = $2::uuid

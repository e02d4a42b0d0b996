-- Counts the undelivered items of a session, by inbox_pending.
SELECT count(*) FROM inbox WHERE tenant = $1 AND session_id = $2 AND fate = 'pending';

-- How many items of a session were not delivered, by inbox_pending.
SELECT count(*) FROM inbox WHERE tenant = $1 AND session_id = $2 AND fate = 'pending';

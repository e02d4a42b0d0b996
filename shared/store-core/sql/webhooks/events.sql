-- Recorded events, oldest first, at most $1, by webhook_events_at; locked, skipping those that
-- others have locked.
SELECT tenant, source, n, type, resource, at FROM webhook_events
ORDER BY at
LIMIT $1
{lock_free};

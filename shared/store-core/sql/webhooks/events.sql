-- Events that were noted, oldest first, at most $1, by webhook_events_at.
SELECT tenant, source, n, type, resource, at FROM webhook_events ORDER BY at LIMIT $1;

-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM webhook_events WHERE (tenant, source, n) IN (
    SELECT tenant, source, n FROM webhook_events WHERE tenant = $1 LIMIT $2
);

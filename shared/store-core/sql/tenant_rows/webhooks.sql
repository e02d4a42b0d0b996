-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM webhooks WHERE (tenant, webhook_id) IN (
    SELECT tenant, webhook_id FROM webhooks WHERE tenant = $1 LIMIT $2
);

-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM idempotency_keys WHERE (tenant, route, "key") IN (
    SELECT tenant, route, "key" FROM idempotency_keys WHERE tenant = $1 LIMIT $2
);

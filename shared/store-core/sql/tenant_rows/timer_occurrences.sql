-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM timer_occurrences WHERE (tenant, timer_id, n) IN (
    SELECT tenant, timer_id, n FROM timer_occurrences WHERE tenant = $1 LIMIT $2
);

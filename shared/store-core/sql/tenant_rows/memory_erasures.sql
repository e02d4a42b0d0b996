-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM memory_erasures WHERE (tenant, erasure_id) IN (
    SELECT tenant, erasure_id FROM memory_erasures WHERE tenant = $1 LIMIT $2
);

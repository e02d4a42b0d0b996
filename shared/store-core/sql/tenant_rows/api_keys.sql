-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM api_keys WHERE (tenant, key_id) IN (
    SELECT tenant, key_id FROM api_keys WHERE tenant = $1 LIMIT $2
);

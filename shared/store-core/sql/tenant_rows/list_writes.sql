-- Removes rows of a tenant that is erased, at most $2, by the primary key.
DELETE FROM list_writes WHERE (tenant, "list", call_id) IN (
    SELECT tenant, "list", call_id FROM list_writes WHERE tenant = $1 LIMIT $2
);

-- A published agent, by the primary key.
SELECT tenant, name, version, created_at, updated_at, archived_at, limits
FROM agents_named
WHERE tenant = $1 AND name = $2;

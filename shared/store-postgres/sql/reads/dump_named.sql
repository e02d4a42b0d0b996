-- Every published agent.
SELECT tenant, name, version, created_at, updated_at, archived_at, limits
FROM agents_named
ORDER BY tenant, name

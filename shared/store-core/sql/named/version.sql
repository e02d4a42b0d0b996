-- A version of an agent, by the primary key.
SELECT tenant, name, n, spec, hash, created_at
FROM agent_versions
WHERE tenant = $1 AND name = $2 AND n = $3;

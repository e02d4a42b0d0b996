-- A version of an agent.
-- Index: the primary key.
SELECT tenant, name, n, spec, hash, created_at
FROM agent_versions
WHERE tenant = $1::integer AND name = $2::text AND n = $3::integer

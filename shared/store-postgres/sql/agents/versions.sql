-- An agent's versions, newest first, older than $3, at most $4.
-- Index: the primary key, backwards.
SELECT tenant, name, n, spec, hash, created_at
FROM agent_versions
WHERE tenant = $1::integer AND name = $2::text AND ($3::integer IS NULL OR n < $3::integer)
ORDER BY n DESC
LIMIT $4::bigint

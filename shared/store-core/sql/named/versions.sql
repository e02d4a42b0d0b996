-- An agent's versions, newest first, older than $3, at most $4.
SELECT tenant, name, n, spec, hash, created_at
FROM agent_versions
WHERE tenant = $1 AND name = $2 AND ($3 IS NULL OR n < $3)
ORDER BY n DESC
LIMIT $4;

-- The version of an agent that is not archived: the number $3, the alias $4 or, without either, the
-- newest one.
SELECT v.tenant, v.name, v.n, v.spec, v.hash, v.created_at
FROM agents_named a
JOIN agent_versions v ON v.tenant = a.tenant AND v.name = a.name
WHERE a.tenant = $1 AND a.name = $2 AND a.archived_at IS NULL
  AND v.n = CASE
      WHEN $4 IS NULL THEN coalesce($3, a.version)
      ELSE (SELECT p.version FROM agent_aliases p
            WHERE p.tenant = a.tenant AND p.name = a.name AND p.alias = $4)
  END;

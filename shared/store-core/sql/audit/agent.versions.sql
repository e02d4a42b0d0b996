-- Published agents whose versions have gaps or do not end at the agent's current number, versions
-- without an agent, and aliases of missing versions.
SELECT json_object('tenant', x.tenant, 'agent', x.name, 'version', x.n)
FROM (
    SELECT a.tenant, a.name, a.version AS n
    FROM agent_aliases a
    LEFT JOIN agent_versions v ON v.tenant = a.tenant AND v.name = a.name AND v.n = a.version
    WHERE v.n IS NULL
    UNION ALL
    SELECT g.tenant, g.name, g.version
    FROM agents_named g
    LEFT JOIN (
        SELECT w.tenant, w.name, count(*) AS numbered, max(w.n) AS newest
        FROM agent_versions w
        GROUP BY w.tenant, w.name
    ) v ON v.tenant = g.tenant AND v.name = g.name
    WHERE coalesce(v.numbered, 0) <> g.version OR coalesce(v.newest, 0) <> g.version
    UNION ALL
    SELECT v.tenant, v.name, v.n
    FROM agent_versions v
    LEFT JOIN agents_named g ON g.tenant = v.tenant AND g.name = v.name
    WHERE g.name IS NULL
) x
ORDER BY x.tenant, x.name, x.n
LIMIT $1;

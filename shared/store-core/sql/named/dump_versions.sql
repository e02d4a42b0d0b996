-- Every version of every agent that has a name.
SELECT tenant, name, n, spec, hash, created_at FROM agent_versions ORDER BY tenant, name, n;

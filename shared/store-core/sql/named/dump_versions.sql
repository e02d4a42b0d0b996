-- Every version of every published agent.
SELECT tenant, name, n, spec, hash, created_at FROM agent_versions ORDER BY tenant, name, n;

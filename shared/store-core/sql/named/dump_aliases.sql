-- Every alias.
SELECT tenant, name, alias, version FROM agent_aliases ORDER BY tenant, name, alias;

-- The aliases of the agents whose names are from $2 to $3, by the primary key.
SELECT tenant, name, alias, version
FROM agent_aliases
WHERE tenant = $1 AND name >= $2 AND name <= $3
ORDER BY name, alias;

-- The aliases of the agents whose names are from $2 to $3.
-- Index: the primary key.
SELECT tenant, name, alias, version
FROM agent_aliases
WHERE tenant = $1::integer AND name >= $2::text COLLATE "C" AND name <= $3::text COLLATE "C"
ORDER BY name, alias

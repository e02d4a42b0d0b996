-- A tenant's agents that have limits, by the primary key.
SELECT name, limits FROM agents_named WHERE tenant = $1 AND limits IS NOT NULL ORDER BY name;

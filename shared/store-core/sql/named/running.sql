-- A tenant's agents that have limits of sends in flight, by the primary key.
SELECT name, limits FROM agents_named
WHERE tenant = $1 AND limits LIKE '%"sends_running":%'
ORDER BY name;

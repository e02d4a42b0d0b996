-- A tenant's agents that have limits of sends in flight.
-- Index: agents_limited.
SELECT name, limits FROM agents_named
WHERE tenant = $1::integer AND limits IS NOT NULL AND limits LIKE '%"sends_running":%'
ORDER BY name

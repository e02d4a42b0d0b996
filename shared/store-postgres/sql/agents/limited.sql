-- A tenant's agents that have limits.
-- Index: agents_limited.
SELECT name, limits FROM agents_named WHERE tenant = $1::integer AND limits IS NOT NULL ORDER BY name

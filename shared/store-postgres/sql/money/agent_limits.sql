-- The limits of those of a tenant's agents that have any. Index: agents_limited.
SELECT g.name, g.limits FROM agents_named g
WHERE g.tenant = $1::integer AND g.name = ANY ($2::text[]) AND g.limits IS NOT NULL

-- The versions of agents, other than archived ones, that references mean: by number, by alias, or
-- the newest one.
-- Index: the primary keys.
SELECT w.ord, v.tenant, v.name, v.n, v.spec, v.hash, v.created_at
FROM unnest($2::text[], $3::integer[], $4::text[]) WITH ORDINALITY AS w (name, n, alias, ord)
JOIN agents_named a ON a.tenant = $1::integer AND a.name = w.name AND a.archived_at IS NULL
LEFT JOIN agent_aliases p ON p.tenant = a.tenant AND p.name = a.name AND p.alias = w.alias
JOIN agent_versions v ON v.tenant = a.tenant AND v.name = a.name
  AND v.n = CASE WHEN w.alias IS NULL THEN coalesce(w.n, a.version) ELSE p.version END

-- A tenant's agents by name, after $2, at most $4; archived ones, too, if $3 is set.
-- Index: the primary key.
SELECT tenant, name, version, created_at, updated_at, archived_at, limits
FROM agents_named
WHERE tenant = $1::integer AND ($2::text IS NULL OR name > $2::text COLLATE "C")
  AND ($3::boolean OR archived_at IS NULL)
ORDER BY name
LIMIT $4::bigint

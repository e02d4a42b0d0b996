-- A tenant's agents by name, after $2, at most $4; archived ones, too, if $3 is set.
SELECT tenant, name, version, created_at, updated_at, archived_at, limits
FROM agents_named
WHERE tenant = $1 AND ($2 IS NULL OR name > $2) AND ($3 OR archived_at IS NULL)
ORDER BY name
LIMIT $4;

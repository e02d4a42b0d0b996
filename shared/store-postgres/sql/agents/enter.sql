-- Creates the row of an agent's name if it does not exist, and locks it.
-- Index: the primary key.
INSERT INTO agents_named AS a (tenant, name, version, created_at, updated_at)
VALUES ($1::integer, $2::text, 0, $3::bigint, $3::bigint)
ON CONFLICT (tenant, name) DO UPDATE SET version = a.version
RETURNING a.tenant, a.name, a.version, a.created_at, a.updated_at, a.archived_at, a.limits

-- Adds the newest version of an agent whose row is locked. Publishing also takes the agent out of
-- the archive.
-- Index: the primary key.
WITH added AS (
    INSERT INTO agent_versions (tenant, name, n, spec, hash, created_at)
    VALUES ($1::integer, $2::text, $3::integer, $4::text, $5::text, $6::bigint)
)
UPDATE agents_named SET version = $3::integer, updated_at = $6::bigint, archived_at = NULL
WHERE tenant = $1::integer AND name = $2::text

-- Points an alias of an agent whose row is locked at a version, or removes it if the version is
-- null.
-- Index: the primary keys.
WITH dropped AS (
    DELETE FROM agent_aliases
    WHERE $4::integer IS NULL AND tenant = $1::integer AND name = $2::text AND alias = $3::text
), pointed AS (
    INSERT INTO agent_aliases (tenant, name, alias, version)
    SELECT $1::integer, $2::text, $3::text, $4::integer
    WHERE $4::integer IS NOT NULL
    ON CONFLICT (tenant, name, alias) DO UPDATE SET version = excluded.version
)
UPDATE agents_named SET updated_at = $5::bigint WHERE tenant = $1::integer AND name = $2::text

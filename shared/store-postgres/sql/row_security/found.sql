-- The first table that does not separate tenants, or whose rows their role may not use; null if
-- there is none.
WITH role AS (SELECT r.oid FROM pg_roles r WHERE r.rolname = 'mainspring_tenant'),
tables AS (
    SELECT
        c.oid, c.relname, c.relrowsecurity,
        EXISTS (
            SELECT FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
        ) AS is_of_tenants,
        EXISTS (
            SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'mainspring_tenant'
        ) AS has_policy
    FROM pg_class c
    WHERE c.relkind = 'r'
      AND c.relnamespace = (SELECT t.relnamespace FROM pg_class t WHERE t.oid = to_regclass('tenants'))
)
SELECT min(tables.relname::text) AS lacking
FROM tables
WHERE NOT EXISTS (SELECT FROM role WHERE has_table_privilege(role.oid, tables.oid, 'SELECT'))
   OR tables.is_of_tenants AND (
        NOT tables.relrowsecurity OR NOT tables.has_policy
        OR NOT EXISTS (SELECT FROM role WHERE has_table_privilege(role.oid, tables.oid, 'DELETE'))
    )

-- Tables and indexes with the statements that create them, and the columns of the tables. Indexes
-- that a table's own statement creates have no statement, and are left out.
SELECT 'table' AS kind, m.name AS name, m.sql AS definition
FROM sqlite_schema m WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' AND m.name <> '_sqlx_migrations'
UNION ALL
SELECT
    'column', m.name || '.' || c.name,
    trim(c.type
    || CASE WHEN c."notnull" THEN ' NOT NULL' ELSE '' END
    || CASE WHEN c.dflt_value IS NOT NULL THEN ' DEFAULT ' || c.dflt_value ELSE '' END)
FROM sqlite_schema m JOIN pragma_table_info(m.name) c
WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' AND m.name <> '_sqlx_migrations'
UNION ALL
SELECT 'index', m.tbl_name || '.' || m.name, m.sql
FROM sqlite_schema m WHERE m.type IN ('index', 'trigger') AND m.sql IS NOT NULL
ORDER BY 1, 2;

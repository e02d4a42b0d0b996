-- Tables, columns, primary keys and indexes of the schema, each with its definition.
SELECT 'table' AS kind, t.table_name AS name, '' AS definition
FROM information_schema.tables t
WHERE t.table_schema = database() AND t.table_type = 'BASE TABLE' AND t.table_name <> '_sqlx_migrations'
UNION ALL
SELECT 'column', concat(c.table_name, '.', c.column_name),
    concat(
        c.column_type,
        CASE WHEN c.collation_name IS NULL OR c.collation_name = 'utf8mb4_bin' THEN '' ELSE concat(' COLLATE ', c.collation_name) END,
        CASE WHEN c.is_nullable = 'NO' THEN ' NOT NULL' ELSE '' END,
        CASE WHEN c.extra LIKE '%auto_increment%' THEN ' AUTO_INCREMENT' ELSE '' END,
        CASE WHEN coalesce(c.generation_expression, '') <> '' THEN concat(' AS (', c.generation_expression, ')') ELSE '' END,
        CASE WHEN c.column_default IS NULL OR c.column_default = 'NULL' THEN '' ELSE concat(' DEFAULT ', c.column_default) END
    )
FROM information_schema.columns c
WHERE c.table_schema = database() AND c.table_name <> '_sqlx_migrations'
UNION ALL
SELECT CASE WHEN s.index_name = 'PRIMARY' THEN 'constraint' ELSE 'index' END, concat(s.table_name, '.', s.index_name),
    concat(
        CASE WHEN s.index_name = 'PRIMARY' THEN 'PRIMARY KEY ' ELSE concat(
            'CREATE ',
            CASE WHEN max(s.index_type) = 'FULLTEXT' THEN 'FULLTEXT ' WHEN max(s.non_unique) = 0 THEN 'UNIQUE ' ELSE '' END,
            'INDEX ', s.index_name, ' ON ', s.table_name, ' '
        ) END,
        '(',
        group_concat(concat(s.column_name, coalesce(concat('(', s.sub_part, ')'), ''), CASE WHEN s.collation = 'D' THEN ' DESC' ELSE '' END)
            ORDER BY s.seq_in_index SEPARATOR ', '),
        ')'
    )
FROM information_schema.statistics s
WHERE s.table_schema = database() AND s.table_name <> '_sqlx_migrations'
GROUP BY s.table_name, s.index_name
ORDER BY kind, name

-- Whether the extension can be had, whether its type is known, and whether memories has a column of it.
SELECT
    EXISTS (SELECT FROM pg_available_extensions e WHERE e.name = 'vector') AS available,
    to_regtype('vector') IS NOT NULL AS known,
    EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = to_regclass('memories') AND a.attname = 'embedding_vector'
          AND a.atttypid = to_regtype('vector') AND NOT a.attisdropped
    ) AS kept

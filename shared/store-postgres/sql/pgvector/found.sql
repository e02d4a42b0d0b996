-- Whether the extension is available, whether its type exists, whether memories has a column of
-- that type, and whether the index and the trigger for the column exist.
SELECT
    EXISTS (SELECT FROM pg_available_extensions e WHERE e.name = 'vector') AS available,
    to_regtype('vector') IS NOT NULL AS known,
    EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = to_regclass('memories') AND a.attname = 'embedding_vector'
          AND a.atttypid = to_regtype('vector') AND NOT a.attisdropped
    ) AS kept,
    to_regclass('memories_outside') IS NOT NULL AND EXISTS (
        SELECT FROM pg_trigger t
        WHERE t.tgrelid = to_regclass('memories') AND t.tgname = 'memories_forget_vector'
    ) AS complete

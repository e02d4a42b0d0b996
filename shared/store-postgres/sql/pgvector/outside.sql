-- Finds the entries with vectors that the extension cannot compare. There are normally none;
-- without this index, each recall would read the whole namespace to find that out.
CREATE INDEX IF NOT EXISTS memories_outside ON memories (tenant, namespace, memory_id)
WHERE embedding_model IS NOT NULL AND embedding_vector IS NULL

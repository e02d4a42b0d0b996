-- Finds the entries with vectors that the extension does not compare, of which there are none as a rule:
-- without it, each recall would read the whole namespace to find none.
CREATE INDEX IF NOT EXISTS memories_outside ON memories (tenant, namespace, memory_id)
WHERE embedding_model IS NOT NULL AND embedding_vector IS NULL

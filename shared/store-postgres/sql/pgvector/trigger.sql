-- Index: none; it looks at the row that is written.
CREATE OR REPLACE TRIGGER memories_forget_vector BEFORE UPDATE OF embedding ON memories
FOR EACH ROW
WHEN (NEW.embedding IS DISTINCT FROM OLD.embedding
      AND NEW.embedding_vector IS NOT DISTINCT FROM OLD.embedding_vector)
EXECUTE FUNCTION memories_forget_vector()

-- Deletes an entry of a namespace, from $3 up to $4; of any namespace if these are null.
DELETE FROM memories
WHERE tenant = $1 AND memory_id = $2
  AND ($3 IS NULL OR namespace >= $3 AND namespace < $4);

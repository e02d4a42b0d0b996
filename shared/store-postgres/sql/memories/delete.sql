-- Deletes an entry of a namespace, from $3 up to $4; of any namespace if these are null.
-- Index: the primary key.
DELETE FROM memories m
WHERE m.tenant = $1::integer AND m.memory_id = $2::uuid
  AND ($3::text IS NULL OR m.namespace >= $3::text AND m.namespace < $4::text)

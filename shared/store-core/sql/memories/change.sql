-- Writes an entry whose text stays.
UPDATE memories SET metadata = $3, updated_at = $4, expires_at = $5, source = $6
WHERE tenant = $1 AND memory_id = $2;

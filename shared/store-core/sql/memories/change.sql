-- Updates an entry whose text does not change.
UPDATE memories SET metadata = $3, updated_at = $4, expires_at = $5, source = $6
WHERE tenant = $1 AND memory_id = $2;

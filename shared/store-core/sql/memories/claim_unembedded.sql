-- Keeps an entry without a vector from others until $3.
UPDATE memories SET embed_at = $3 WHERE tenant = $1 AND memory_id = $2;

-- Claims an entry without a vector until $3.
UPDATE memories SET embed_at = $3 WHERE tenant = $1 AND memory_id = $2;

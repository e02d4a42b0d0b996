-- Deletes the extractions for a namespace, from $2 up to $3.
DELETE FROM extractions WHERE tenant = $1 AND namespace >= $2 AND namespace < $3;

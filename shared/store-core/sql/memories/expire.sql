-- Deletes at most $2 entries that expired before $1, by memories_expires.
DELETE FROM memories
WHERE n IN (SELECT n FROM memories WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2);

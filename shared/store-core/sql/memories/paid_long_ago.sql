-- Removes the costs of vectors made before $2, by the primary key.
DELETE FROM memory_usage WHERE tenant = $1 AND call_id < $2;

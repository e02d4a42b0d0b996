-- Removes the costs of vectors made before $2.
-- Index: the primary key.
DELETE FROM memory_usage m WHERE m.tenant = $1::integer AND m.call_id < $2::uuid

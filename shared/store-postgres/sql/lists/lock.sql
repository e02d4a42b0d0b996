-- Creates a list if it does not exist, and locks it; returns its counters.
-- Index: the primary key.
INSERT INTO lists AS l (tenant, list, next_id, version) VALUES ($1::integer, $2::text, 1, 0)
ON CONFLICT (tenant, list) DO UPDATE SET version = l.version
RETURNING l.next_id, l.version

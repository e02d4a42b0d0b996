-- Stores a list's counters.
INSERT INTO lists (tenant, list, next_id, version) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, list) DO UPDATE SET next_id = excluded.next_id, version = excluded.version;

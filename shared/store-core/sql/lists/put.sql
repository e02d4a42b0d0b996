-- Stores a new or changed entry.
INSERT INTO list_entries (tenant, list, id, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, list, id) DO UPDATE SET body = excluded.body;

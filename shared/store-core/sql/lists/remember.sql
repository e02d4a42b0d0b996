-- Remembers what a call did to the list.
INSERT INTO list_writes (tenant, list, call_id, n, entry_id, evicted) VALUES ($1, $2, $3, $4, $5, $6);

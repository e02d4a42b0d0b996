-- Stores the fate of an occurrence. Its key rejects a second fate.
INSERT INTO timer_occurrences (tenant, timer_id, n, due_at, fate, send_id, fired_at, manual)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

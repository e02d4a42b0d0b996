-- Ends a pause at $4, by the primary key.
UPDATE pauses SET resumed_at = $4
WHERE tenant = $1 AND kind = $2 AND name = $3 AND resumed_at IS NULL;

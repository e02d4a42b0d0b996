-- An active pause, by the primary key.
SELECT tenant, kind, name, reason, created_at FROM pauses
WHERE tenant = $1 AND kind = $2 AND name = $3 AND resumed_at IS NULL;

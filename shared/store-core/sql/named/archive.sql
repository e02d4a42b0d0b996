-- Archives an agent from $3 on, or restores it if that is null.
UPDATE agents_named SET archived_at = $3, updated_at = $4 WHERE tenant = $1 AND name = $2;

-- Archives an agent from $3 on, or restores it if that is null.
-- Index: the primary key.
UPDATE agents_named SET archived_at = $3::bigint, updated_at = $4::bigint
WHERE tenant = $1::integer AND name = $2::text

-- Sets what an agent may use from $4 on.
-- Index: the primary key.
UPDATE agents_named SET limits = $3::text, updated_at = $4::bigint
WHERE tenant = $1::integer AND name = $2::text

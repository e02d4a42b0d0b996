-- The active pauses of the tenants from $1 to $2, after the key ($3, $4, $5), by the primary key.
SELECT p.tenant, p.kind, p.name, p.reason, p.created_at
FROM pauses p
WHERE p.tenant >= $1::integer AND p.tenant <= $2::integer AND p.resumed_at IS NULL
  AND (p.tenant, p.kind, p.name) > ($3::integer, $4::text, $5::text)
ORDER BY p.tenant, p.kind, p.name
LIMIT $6::bigint

-- The active pauses of the tenants from $1 to $2, after the key ($3, $4, $5), at most $6, by the
-- primary key.
SELECT tenant, kind, name, reason, created_at FROM pauses
WHERE tenant >= $1 AND tenant <= $2 AND resumed_at IS NULL
  AND (tenant > $3 OR (tenant = $3 AND (kind > $4 OR (kind = $4 AND name > $5))))
ORDER BY tenant, kind, name
LIMIT $6;

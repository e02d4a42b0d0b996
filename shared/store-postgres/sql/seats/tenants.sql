-- Tenants that have a line: one, or all.
-- Index: seat_limits_pkey, seats_line.
SELECT l.tenant FROM seat_limits l
WHERE ($1::integer IS NULL OR l.tenant = $1::integer)
  AND EXISTS (SELECT FROM seats w WHERE w.tenant = l.tenant AND w.waits_since IS NOT NULL)
  AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = l.tenant)
ORDER BY l.tenant

-- Tenants from $1 up to $2 that have a line. By the primary key and seats_line.
SELECT l.tenant FROM seat_limits l
WHERE l.tenant >= $1 AND l.tenant <= $2
  AND EXISTS (SELECT 1 FROM seats w WHERE w.tenant = l.tenant AND w.waits_since IS NOT NULL)
ORDER BY l.tenant;

-- Removes the seats of the tenant $1, whose row of limits is locked, once nothing limits them. By
-- the primary keys.
DELETE FROM seat_limits
WHERE tenant = $1 AND sends_running IS NULL AND leaves_running IS NULL AND agents = 0;
DELETE FROM seats
WHERE tenant = $1 AND NOT EXISTS (SELECT 1 FROM seat_limits l WHERE l.tenant = seats.tenant);

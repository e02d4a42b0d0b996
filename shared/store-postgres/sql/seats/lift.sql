-- Removes a tenant's own limits on its seats. Whoever takes a seat holds the lock of this row.
-- Index: seat_limits_pkey.
UPDATE seat_limits l SET sends_running = NULL, leaves_running = NULL WHERE l.tenant = $1::integer

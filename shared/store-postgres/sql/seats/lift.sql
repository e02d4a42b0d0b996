-- A tenant itself limits its seats no more. Whoever takes one holds the lock of this row.
-- Index: seat_limits_pkey.
UPDATE seat_limits l SET sends_running = NULL, leaves_running = NULL WHERE l.tenant = $1::integer

-- A tenant has as many seats as it wants from now on. Whoever takes one holds the lock of this row.
-- Index: seat_limits_pkey.
DELETE FROM seat_limits l WHERE l.tenant = $1::integer

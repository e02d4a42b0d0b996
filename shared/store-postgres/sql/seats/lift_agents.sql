-- Records that no agent of a tenant has a limit any more. Whoever takes a seat holds the lock of
-- this row.
-- Index: seat_limits_pkey.
UPDATE seat_limits l SET agents = FALSE WHERE l.tenant = $1::integer

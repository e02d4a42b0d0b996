-- Removes a tenant's seats and its line once nothing limits its seats.
-- Index: seats_pkey, seat_limits_pkey.
DELETE FROM seats t
WHERE t.tenant = $1::integer
  AND NOT EXISTS (SELECT FROM seat_limits l WHERE l.tenant = t.tenant)

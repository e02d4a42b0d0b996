-- Removes the limits of a tenant's seats, whose row is locked, once none is set.
-- Index: seat_limits_pkey.
DELETE FROM seat_limits l
WHERE l.tenant = $1::integer AND l.sends_running IS NULL AND l.leaves_running IS NULL AND NOT l.agents

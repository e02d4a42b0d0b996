-- Since when tenants have seats, for comparisons.
SELECT l.tenant, l.set_at FROM seat_limits l ORDER BY l.tenant

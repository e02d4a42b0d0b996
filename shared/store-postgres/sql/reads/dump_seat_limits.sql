-- When each tenant's limit of seats was set, for comparisons.
SELECT l.tenant, l.set_at FROM seat_limits l ORDER BY l.tenant

-- Since when tenants have seats.
SELECT tenant, set_at FROM seat_limits ORDER BY tenant;

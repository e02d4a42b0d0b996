-- When each tenant's limit of seats was set.
SELECT tenant, set_at FROM seat_limits ORDER BY tenant;

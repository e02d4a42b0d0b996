-- What tenants spent by day.
SELECT tenant, day, spent FROM money_days ORDER BY tenant, day;

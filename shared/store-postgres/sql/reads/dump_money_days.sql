-- What tenants spent by day.
SELECT d.tenant, d.day, d.spent FROM money_days d ORDER BY d.tenant, d.day

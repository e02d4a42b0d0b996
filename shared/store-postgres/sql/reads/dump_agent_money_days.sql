-- What agents spent by day.
SELECT d.tenant, d.holder, d.day, d.spent FROM agent_money_days d ORDER BY d.tenant, d.holder, d.day

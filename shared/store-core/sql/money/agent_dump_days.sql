-- What agents spent by day.
SELECT tenant, holder, day, spent FROM agent_money_days ORDER BY tenant, holder, day;

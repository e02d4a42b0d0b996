-- Removes what the agent $2 of the tenant $1 has spent and reserved. By the primary keys: the
-- tenant's calls in flight are few.
DELETE FROM agent_money_aside WHERE tenant = $1 AND holder = $2;
DELETE FROM agent_money_days WHERE tenant = $1 AND holder = $2;

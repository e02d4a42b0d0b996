-- Forgets what the agent $2 of the tenant $1 spent before the day $3. By the primary key.
DELETE FROM agent_money_days WHERE tenant = $1 AND holder = $2 AND day < $3;

-- Starts counting what is spent in the minute $4 of the day $3 of the agent $2 of the tenant $1. By
-- the primary key.
UPDATE agent_money_days SET minute = $4, minute_spent = 0 WHERE tenant = $1 AND holder = $2 AND day = $3;

-- Removes the reservation of the call $3 of the agent $2 of the tenant $1, which cost $5 and took
-- $6 tokens on the day $4, in the minute $7. By the primary keys.
DELETE FROM agent_money_aside WHERE tenant = $1 AND call_id = $3;
UPDATE agent_money_days SET
    spent = spent + $5,
    tokens = tokens + $6,
    minute_spent = CASE WHEN minute = $7 THEN minute_spent + $5 ELSE minute_spent END
WHERE tenant = $1 AND holder = $2 AND day = $4;

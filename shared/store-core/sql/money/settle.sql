-- The call $2 of the tenant $1 has nothing set aside any more, and cost $4 and took $5 tokens on the day $3. By the
-- primary keys.
DELETE FROM money_aside WHERE tenant = $1 AND call_id = $2;
UPDATE money_days SET spent = spent + $4, tokens = tokens + $5 WHERE tenant = $1 AND day = $3;

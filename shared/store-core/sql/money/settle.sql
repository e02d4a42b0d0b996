-- Removes the reservation of the call $2 of the tenant $1, which cost $4 and took $5 tokens on the
-- day $3, in the minute $6. By the primary keys.
DELETE FROM money_aside WHERE tenant = $1 AND call_id = $2;
UPDATE money_days SET
    spent = spent + $4,
    tokens = tokens + $5,
    minute_spent = CASE WHEN minute = $6 THEN minute_spent + $4 ELSE minute_spent END
WHERE tenant = $1 AND day = $3;

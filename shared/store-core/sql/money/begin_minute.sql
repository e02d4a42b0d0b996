-- Starts counting what is spent in the minute $3 of the day $2 of the tenant $1. By the primary
-- key.
UPDATE money_days SET minute = $3, minute_spent = 0 WHERE tenant = $1 AND day = $2;

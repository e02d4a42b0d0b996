-- Forgets what the tenant $1 spent before the day $2. By the primary key.
DELETE FROM money_days WHERE tenant = $1 AND day < $2;

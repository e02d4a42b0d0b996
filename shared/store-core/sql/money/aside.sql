-- What the call $2 of the tenant $1 has set aside, and when it began. By the primary key.
SELECT amount, tokens, day, at FROM money_aside WHERE tenant = $1 AND call_id = $2;

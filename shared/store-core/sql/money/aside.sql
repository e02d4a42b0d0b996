-- The reservations of the call $2 of the tenant $1, and when it began: in the tenant's account,
-- without a holder, and in that of its agent. By the primary keys.
SELECT NULL AS holder, amount, tokens, day, at FROM money_aside WHERE tenant = $1 AND call_id = $2
UNION ALL
SELECT holder, amount, tokens, day, at FROM agent_money_aside WHERE tenant = $1 AND call_id = $2;

-- What calls of a tenant have reserved; the amount in the account of an agent is the same. Index:
-- money_aside_pkey, agent_money_aside_pkey.
SELECT a.call_id, a.amount, a.tokens FROM money_aside a WHERE a.tenant = $1::integer AND a.call_id = ANY ($2::uuid[])
UNION ALL
SELECT a.call_id, a.amount, a.tokens FROM agent_money_aside a
WHERE a.tenant = $1::integer AND a.call_id = ANY ($2::uuid[])

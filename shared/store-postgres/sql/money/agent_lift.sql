-- Removes what an agent has spent and reserved. Index: agent_money_aside_pkey, of the tenant's
-- calls in flight, which are few, and agent_money_days_pkey.
WITH aside AS (DELETE FROM agent_money_aside a WHERE a.tenant = $1::integer AND a.holder = $2::uuid)
DELETE FROM agent_money_days d WHERE d.tenant = $1::integer AND d.holder = $2::uuid

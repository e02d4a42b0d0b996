-- Forgets what an agent spent before a day. Index: agent_money_days_pkey.
DELETE FROM agent_money_days d WHERE d.tenant = $1::integer AND d.holder = $2::uuid AND d.day < $3::bigint

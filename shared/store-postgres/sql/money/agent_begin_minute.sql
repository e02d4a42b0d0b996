-- Starts counting what an agent spends in a minute of a day. Index: agent_money_days_pkey.
UPDATE agent_money_days d SET minute = $4::bigint, minute_spent = 0
WHERE d.tenant = $1::integer AND d.holder = $2::uuid AND d.day = $3::bigint

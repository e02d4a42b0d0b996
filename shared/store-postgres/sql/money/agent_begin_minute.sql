-- Counts what is spent from now on for a minute of a day of an agent. Index: agent_money_days_pkey.
UPDATE agent_money_days d SET minute = $4::bigint, minute_spent = 0
WHERE d.tenant = $1::integer AND d.holder = $2::uuid AND d.day = $3::bigint

-- Begins a day of an agent. Index: agent_money_days_pkey.
INSERT INTO agent_money_days (tenant, holder, day, spent, tokens)
VALUES ($1::integer, $2::uuid, $3::bigint, 0, 0)
ON CONFLICT DO NOTHING

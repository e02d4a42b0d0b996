-- Begins the day $3 of the agent $2 of the tenant $1. By the primary key.
INSERT INTO agent_money_days (tenant, holder, day, spent, tokens) VALUES ($1, $2, $3, 0, 0)
ON CONFLICT (tenant, holder, day) DO NOTHING;

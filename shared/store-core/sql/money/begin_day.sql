-- Begins the day $2 of the tenant $1 with the money and tokens that were already spent on it. By
-- the primary key.
INSERT INTO money_days (tenant, day, spent, tokens) VALUES ($1, $2, $3, $4) ON CONFLICT (tenant, day) DO NOTHING;

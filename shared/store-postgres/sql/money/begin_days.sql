-- Begins days of a tenant with the money and tokens that were already spent on them. Index:
-- money_days_pkey.
INSERT INTO money_days (tenant, day, spent, tokens)
SELECT $1::integer, e.day, e.spent, e.tokens
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS e (day, spent, tokens)
ON CONFLICT DO NOTHING

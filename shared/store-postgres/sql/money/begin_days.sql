-- Begins days of a tenant with what was spent of them. Index: money_days_pkey.
INSERT INTO money_days (tenant, day, spent)
SELECT $1::integer, e.day, e.spent
FROM unnest($2::bigint[], $3::bigint[]) AS e (day, spent)
ON CONFLICT DO NOTHING

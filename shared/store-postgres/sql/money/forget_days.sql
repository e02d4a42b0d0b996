-- Forgets what a tenant spent before a day. Index: money_days_pkey.
DELETE FROM money_days d WHERE d.tenant = $1::integer AND d.day < $2::bigint

-- Starts counting what a tenant spends in a minute of a day. Index: money_days_pkey.
UPDATE money_days d SET minute = $3::bigint, minute_spent = 0 WHERE d.tenant = $1::integer AND d.day = $2::bigint

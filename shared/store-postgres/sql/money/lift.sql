-- Removes the account of a tenant whose money is not limited any more; agents' accounts
-- stay. Index: money_aside_pkey, money_days_pkey.
WITH aside AS (DELETE FROM money_aside a WHERE a.tenant = $1::integer)
DELETE FROM money_days d WHERE d.tenant = $1::integer

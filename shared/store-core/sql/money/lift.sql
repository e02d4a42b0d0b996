-- Removes the account of the tenant $1, whose money is not limited any more; agents' accounts stay.
-- By the primary keys.
DELETE FROM money_aside WHERE tenant = $1;
DELETE FROM money_days WHERE tenant = $1;

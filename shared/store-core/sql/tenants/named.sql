-- The tenant with the name $1, by the unique key of names, unless it is being erased.
-- Lengths, too, as blanks at an end count for nothing in comparisons of MySQL.
SELECT tenant FROM tenants WHERE name = $1 AND length(name) = length($1) AND erasing_at IS NULL;

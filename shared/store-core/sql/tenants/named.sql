-- The tenant with the name $1, by the unique key of names, unless it is being erased. Lengths are
-- compared, too, as MySQL ignores trailing blanks in comparisons.
SELECT tenant FROM tenants WHERE name = $1 AND length(name) = length($1) AND erasing_at IS NULL;

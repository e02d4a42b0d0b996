-- The tenant with the name $1, by the unique key of names.
SELECT tenant FROM tenants WHERE name = $1;

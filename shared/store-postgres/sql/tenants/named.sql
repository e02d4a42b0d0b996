-- The tenant with this name.
-- Index: tenants_name_key.
SELECT t.tenant FROM tenants t WHERE t.name = $1::text

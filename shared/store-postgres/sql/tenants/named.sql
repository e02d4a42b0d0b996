-- The tenant with this name, unless it is being erased.
-- Index: tenants_name_key.
SELECT t.tenant FROM tenants t WHERE t.name = $1::text AND t.erasing_at IS NULL

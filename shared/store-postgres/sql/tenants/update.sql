-- Changes a tenant; what is null stays.
-- Index: tenants_pkey.
UPDATE tenants t SET name = coalesce($2::text, t.name), limits = coalesce($3::text, t.limits)
WHERE t.tenant = $1::integer AND t.deleted_at IS NULL
RETURNING t.tenant, t.name, t.limits, t.created_at

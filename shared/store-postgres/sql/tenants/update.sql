-- Changes a tenant; null values are left unchanged, and an empty text removes the pools.
-- Index: tenants_pkey.
UPDATE tenants t SET
    name = coalesce($2::text, t.name), limits = coalesce($3::text, t.limits),
    weight = coalesce($4::integer, t.weight), retention = coalesce($5::text, t.retention),
    pools = nullif(coalesce($6::text, t.pools), '')
WHERE t.tenant = $1::integer AND t.deleted_at IS NULL
RETURNING t.tenant, t.name, t.limits, t.weight, t.retention, t.pools, t.erasing_at, t.created_at

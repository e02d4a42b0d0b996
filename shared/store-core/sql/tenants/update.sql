-- Changes a tenant; null values are left unchanged, and an empty text removes the pools.
UPDATE tenants SET name = coalesce($2, name), limits = coalesce($3, limits), weight = coalesce($4, weight),
    retention = coalesce($5, retention), pools = nullif(coalesce($6, pools), '')
WHERE tenant = $1 AND deleted_at IS NULL;

-- Changes a tenant; what is null stays, and no pools are an empty text.
UPDATE tenants SET name = coalesce($2, name), limits = coalesce($3, limits), weight = coalesce($4, weight),
    retention = coalesce($5, retention), pools = nullif(coalesce($6, pools), '')
WHERE tenant = $1 AND deleted_at IS NULL;

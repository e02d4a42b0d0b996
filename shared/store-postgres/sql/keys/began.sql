-- Notes that a tenant has its first key.
-- Index: tenants_pkey.
UPDATE tenants t SET keyed_at = coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE t.tenant = $2::integer AND t.keyed_at IS NULL

-- Creates a tenant with the next number, under the lock.
-- Index: tenants_pkey backwards.
INSERT INTO tenants AS t (tenant, name, limits, created_at, weight, retention, pools)
SELECT max(o.tenant) + 1, $2::text, $3::text, coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    $4::integer, $5::text, $6::text
FROM tenants o
RETURNING t.tenant, t.name, t.limits, t.weight, t.retention, t.pools, t.erasing_at, t.created_at

-- Enters a tenant on a database that is not the home: under its number instead of its name, which
-- only the home stores.
-- Index: tenants_pkey.
INSERT INTO tenants AS t (
    tenant, name, limits, weight, retention, pools, created_at, erasing_at, erased_at, erasure
)
VALUES (
    $1::integer, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::bigint, $8::bigint, $9::bigint,
    $10::text
)
ON CONFLICT (tenant) DO UPDATE SET
    name = excluded.name, limits = excluded.limits, weight = excluded.weight,
    retention = excluded.retention, pools = excluded.pools, erasing_at = excluded.erasing_at,
    erased_at = excluded.erased_at, erasure = excluded.erasure, deleted_at = NULL

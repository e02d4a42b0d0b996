-- How far the erasure of the tenant $1 has got.
SELECT erasing_at, erased_at, erasure FROM tenants WHERE tenant = $1 AND erasing_at IS NOT NULL;

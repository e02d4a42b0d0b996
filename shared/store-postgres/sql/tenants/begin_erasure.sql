-- Begins the erasure of a tenant, and revokes its keys. A repeat changes nothing.
-- Index: the primary keys.
WITH
    n AS (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now),
    k AS (
        UPDATE api_keys k SET revoked_at = n.now FROM n
        WHERE k.tenant = $2::integer AND k.revoked_at IS NULL
    )
UPDATE tenants t SET erasing_at = coalesce(t.erasing_at, n.now) FROM n
WHERE t.tenant = $2::integer AND t.deleted_at IS NULL
RETURNING t.tenant, t.erasing_at, t.erased_at, t.erasure

-- Deletes a tenant, whose number stays taken, and revokes its keys.
-- Index: the primary keys.
WITH
    n AS (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now),
    k AS (
        UPDATE api_keys k SET revoked_at = n.now FROM n
        WHERE k.tenant = $2::integer AND k.revoked_at IS NULL
    )
UPDATE tenants t SET name = NULL, deleted_at = n.now FROM n WHERE t.tenant = $2::integer

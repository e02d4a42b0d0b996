-- Begins the erasure of the tenant $1 at $2, and revokes its keys. A repeat changes nothing.
UPDATE tenants SET erasing_at = coalesce(erasing_at, $2) WHERE tenant = $1 AND deleted_at IS NULL;
UPDATE api_keys SET revoked_at = $2 WHERE tenant = $1 AND revoked_at IS NULL;

-- Deletes a tenant, whose number stays taken, and revokes its keys.
UPDATE tenants SET name = NULL, deleted_at = $2 WHERE tenant = $1;
UPDATE api_keys SET revoked_at = $2 WHERE tenant = $1 AND revoked_at IS NULL;

-- Notes that a tenant has its first key.
UPDATE tenants SET keyed_at = $2 WHERE tenant = $1 AND keyed_at IS NULL;

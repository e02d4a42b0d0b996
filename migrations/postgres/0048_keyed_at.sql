-- When the first API key of a tenant was created; null while it never had one. Once any tenant has, schedulers serve
-- nobody without a key, also after all keys were revoked and removed.
ALTER TABLE tenants ADD COLUMN keyed_at BIGINT;
UPDATE tenants SET keyed_at = 0 WHERE tenant IN (SELECT k.tenant FROM api_keys k);

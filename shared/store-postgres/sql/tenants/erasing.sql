-- Tenants whose erasure has not ended. There are few tenants.
SELECT t.tenant FROM tenants t WHERE t.erasing_at IS NOT NULL AND t.erased_at IS NULL ORDER BY t.tenant

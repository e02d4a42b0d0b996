-- Tenants whose erasure has not ended. There are few tenants.
SELECT tenant FROM tenants WHERE erasing_at IS NOT NULL AND erased_at IS NULL ORDER BY tenant;

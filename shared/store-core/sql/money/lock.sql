-- The limits of the tenant $1. One writer at a time is enough for a lock here.
SELECT limits FROM tenants WHERE tenant = $1 AND deleted_at IS NULL;

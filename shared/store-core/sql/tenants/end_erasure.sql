-- Ends the erasure of the tenant $1 at $2. What is left is its number, and how much was removed.
UPDATE tenants SET erased_at = $2, limits = '{}', retention = NULL, weight = 1 WHERE tenant = $1;

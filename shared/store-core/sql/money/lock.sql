-- The limits of the tenant $1, locked: nobody else reserves any of its money until the transaction
-- ends.
SELECT limits FROM tenants WHERE tenant = $1 AND deleted_at IS NULL {lock};

-- The limits of the tenant $1, locked: nobody else sets any of its money aside until the transaction ends.
SELECT limits FROM tenants WHERE tenant = $1 AND deleted_at IS NULL {lock};

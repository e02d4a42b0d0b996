-- Nobody else takes places of the tenant $1 until the transaction ends.
SELECT tenant FROM tenants WHERE tenant = $1 {lock};

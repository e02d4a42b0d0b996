-- Nobody else takes places of the tenant $1 until the transaction ends. One writer at a time is enough for it
-- here.
SELECT tenant FROM tenants WHERE tenant = $1;

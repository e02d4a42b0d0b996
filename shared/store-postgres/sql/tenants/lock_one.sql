-- Nobody else takes places of the tenant until the transaction ends.
-- Index: tenants_pkey.
SELECT t.tenant FROM tenants t WHERE t.tenant = $1::integer FOR UPDATE

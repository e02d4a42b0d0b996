-- Nobody else creates, renames or deletes a tenant until the transaction ends.
-- Index: tenants_pkey.
SELECT t.tenant FROM tenants t WHERE t.tenant = 1 FOR UPDATE

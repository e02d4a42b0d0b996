-- Nobody else creates, renames or deletes a tenant until the transaction ends.
SELECT tenant FROM tenants WHERE tenant = 1 {lock};

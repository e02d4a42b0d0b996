-- Nobody else creates, renames or deletes a tenant until the transaction ends. One writer at a time is
-- enough for it here.
SELECT tenant FROM tenants WHERE tenant = 1;

-- Removes a tenant's key for a provider. Index: the primary key.
DELETE FROM provider_keys WHERE tenant = $1 AND provider = $2;

-- Removes a tenant's key. Index: the primary key.
DELETE FROM provider_keys WHERE tenant = $1 AND provider = $2;

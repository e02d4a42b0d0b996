-- A tenant's key for a provider. Index: the primary key.
SELECT tenant, provider, sealed, hint, set_at FROM provider_keys WHERE tenant = $1 AND provider = $2;

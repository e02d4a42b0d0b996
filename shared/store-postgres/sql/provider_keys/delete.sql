-- Removes a tenant's key for a provider. Index: the primary key.
DELETE FROM provider_keys p WHERE p.tenant = $1::integer AND p.provider = $2::text RETURNING p.tenant

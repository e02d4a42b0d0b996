-- A tenant's keys for providers after $2, at most $3, by the primary key.
SELECT tenant, provider, sealed, hint, set_at FROM provider_keys
WHERE tenant = $1 AND provider > $2
ORDER BY tenant, provider
LIMIT $3;

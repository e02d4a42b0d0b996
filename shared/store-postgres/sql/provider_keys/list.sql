-- A tenant's keys for providers after $2, by the primary key.
SELECT p.tenant, p.provider, p.sealed, p.hint, p.set_at
FROM provider_keys p
WHERE p.tenant = $1::integer AND p.provider > $2::text
ORDER BY p.tenant, p.provider
LIMIT $3::bigint

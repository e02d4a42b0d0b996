-- Sets a key, replacing the previous one. Index: the primary key.
INSERT INTO provider_keys AS p (tenant, provider, sealed, hint, set_at)
VALUES ($2::integer, $3::text, $4::text, $5::text,
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
ON CONFLICT (tenant, provider) DO UPDATE SET
    sealed = excluded.sealed, hint = excluded.hint, set_at = excluded.set_at
RETURNING p.tenant, p.provider, p.sealed, p.hint, p.set_at

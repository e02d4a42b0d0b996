-- Sets a key, replacing the previous one. Index: the primary key.
INSERT INTO provider_keys (tenant, provider, sealed, hint, set_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, provider) DO UPDATE SET
    sealed = excluded.sealed, hint = excluded.hint, set_at = excluded.set_at;

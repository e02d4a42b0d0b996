-- Sets a key, in the place of the one before. Index: the primary key.
INSERT INTO provider_keys (tenant, provider, sealed, hint, set_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, provider) DO UPDATE SET
    sealed = excluded.sealed, hint = excluded.hint, set_at = excluded.set_at;

-- Records that a tenant is on this database from now on, unless a later move says otherwise. This
-- also undoes what an older move closed too late. The commit survives a crash: once the move is
-- done, nobody would do this again.
-- Index: tenants_away_pkey.
DELETE FROM tenants_away a
USING set_config('synchronous_commit', 'on', TRUE) AS durable
WHERE a.tenant = $1::integer AND a.version <= $2::bigint

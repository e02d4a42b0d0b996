-- Records that a tenant is not on this database, because of the move with the version $2 or a later
-- one. The commit survives a crash: what is written afterwards is not copied.
-- Index: tenants_away_pkey.
INSERT INTO tenants_away AS a (tenant, version, arriving)
SELECT $1::integer, $2::bigint, $3::boolean
FROM set_config('synchronous_commit', 'on', TRUE) AS durable
ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, arriving = excluded.arriving
WHERE a.version <= excluded.version

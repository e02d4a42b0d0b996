-- A tenant is on this database from now on, unless a later move says otherwise. What an older one has closed too late is
-- opened, too. It is there behind a crash: nobody opens the tenant once more whose move is done.
-- Index: tenants_away_pkey.
DELETE FROM tenants_away a
USING set_config('synchronous_commit', 'on', TRUE) AS durable
WHERE a.tenant = $1::integer AND a.version <= $2::bigint

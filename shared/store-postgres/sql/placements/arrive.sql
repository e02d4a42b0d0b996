-- A tenant is on this database from now on, unless a later move says otherwise.
-- Index: tenants_away_pkey.
DELETE FROM tenants_away a WHERE a.tenant = $1::integer AND a.version = $2::bigint

-- Whether the move with this version still decides on the tenant's rows here. Nothing else does
-- until the transaction ends.
-- Index: tenants_away_pkey.
SELECT a.arriving FROM tenants_away a
WHERE a.tenant = $1::integer AND a.version = $2::bigint
FOR UPDATE

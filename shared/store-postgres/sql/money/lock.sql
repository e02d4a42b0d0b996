-- The limits of a tenant, locked: nobody else sets any of its money aside until the transaction ends. And the
-- database's time.
-- Index: tenants_pkey.
SELECT t.limits, coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
FROM tenants t WHERE t.tenant = $2::integer AND t.deleted_at IS NULL FOR UPDATE

-- The limits of a tenant, locked: nobody else sets any of its money aside until the transaction ends. Whether any of its
-- agents has such limits; one that gets some while this waits for the lock may not be seen, and has no call counted yet.
-- And the database's time.
-- Index: tenants_pkey, agents_money.
SELECT
    t.limits,
    EXISTS (
        SELECT FROM agents_named g
        WHERE g.tenant = $2::integer
          AND (
              g.limits LIKE '%"usd_per_%'
              OR g.limits LIKE '%"tokens_per_day"%'
              OR g.limits LIKE '%"tokens_per_month"%'
          )
    ) AS has_agents,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
FROM tenants t WHERE t.tenant = $2::integer AND t.deleted_at IS NULL FOR UPDATE

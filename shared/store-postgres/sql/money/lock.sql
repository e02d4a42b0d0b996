-- The limits of a tenant, locked: nobody else reserves any of its money until the transaction ends;
-- whether any of its agents has such limits; and the database's time. An agent that gets limits
-- while this waits for the lock may be missed, but has no call counted yet.
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

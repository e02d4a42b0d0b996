-- Amounts that a tenant or an agent reserved for a day that has no row, or that were reserved by a
-- boot that has had no lease for a minute.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'tenant', x.tenant, 'call', replace(x.call_id::text, '-', ''), 'why', x.why
)::text AS row
FROM (
    SELECT a.tenant, a.call_id, 'of no day' AS why
    FROM money_aside a
    WHERE NOT EXISTS (SELECT FROM money_days d WHERE d.tenant = a.tenant AND d.day = a.day)
    UNION ALL
    SELECT a.tenant, a.call_id, 'of no day of its agent' AS why
    FROM agent_money_aside a
    WHERE NOT EXISTS (
        SELECT FROM agent_money_days d
        WHERE d.tenant = a.tenant AND d.holder = a.holder AND d.day = a.day
    )
    UNION ALL
    SELECT a.tenant, a.call_id, 'of no boot, for its agent' AS why
    FROM agent_money_aside a CROSS JOIN bound c
    WHERE a.at < c.now - 60000
      AND NOT EXISTS (
          SELECT FROM boots b
          WHERE b.boot_id = a.boot_id AND coalesce(b.dead_at, b.lease_until) >= c.now - 60000
      )
    UNION ALL
    SELECT a.tenant, a.call_id, 'of no boot' AS why
    FROM money_aside a CROSS JOIN bound c
    WHERE a.at < c.now - 60000
      AND NOT EXISTS (
          SELECT FROM boots b
          WHERE b.boot_id = a.boot_id AND coalesce(b.dead_at, b.lease_until) >= c.now - 60000
      )
) x
ORDER BY x.tenant, x.call_id
LIMIT (SELECT b.rows_max FROM bound b)

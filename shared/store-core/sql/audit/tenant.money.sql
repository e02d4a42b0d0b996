-- Amounts that a tenant or an agent reserved for a day that has no row, or that were reserved by a
-- boot that has had no lease for a minute.
SELECT json_object('tenant', x.tenant, 'call', lower(hex(x.call_id)), 'why', x.why)
FROM (
    SELECT a.tenant, a.call_id, 'of no day' AS why
    FROM money_aside a
    WHERE NOT EXISTS (SELECT 1 FROM money_days d WHERE d.tenant = a.tenant AND d.day = a.day)
    UNION ALL
    SELECT a.tenant, a.call_id, 'of no day of its agent' AS why
    FROM agent_money_aside a
    WHERE NOT EXISTS (SELECT 1 FROM agent_money_days d
                      WHERE d.tenant = a.tenant AND d.holder = a.holder AND d.day = a.day)
    UNION ALL
    SELECT a.tenant, a.call_id, 'of no boot' AS why
    FROM money_aside a
    WHERE a.at < $3
      AND NOT EXISTS (SELECT 1 FROM boots b
                      WHERE b.boot_id = a.boot_id AND coalesce(b.dead_at, b.lease_until) >= $3)
    UNION ALL
    SELECT a.tenant, a.call_id, 'of no boot, for its agent' AS why
    FROM agent_money_aside a
    WHERE a.at < $3
      AND NOT EXISTS (SELECT 1 FROM boots b
                      WHERE b.boot_id = a.boot_id AND coalesce(b.dead_at, b.lease_until) >= $3)
) x
ORDER BY x.tenant, x.call_id
LIMIT $1;

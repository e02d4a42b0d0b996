-- Calls with a reservation, of their tenant or their agent, whose boots have no lease at $1 or that
-- began before $2, at most $3. There are as many as calls in flight; boots by the primary key.
SELECT a.tenant, a.call_id
FROM money_aside a
WHERE a.at < $2
   OR NOT EXISTS (SELECT 1 FROM boots b
                  WHERE b.boot_id = a.boot_id AND b.dead_at IS NULL AND b.lease_until >= $1)
UNION
SELECT a.tenant, a.call_id
FROM agent_money_aside a
WHERE a.at < $2
   OR NOT EXISTS (SELECT 1 FROM boots b
                  WHERE b.boot_id = a.boot_id AND b.dead_at IS NULL AND b.lease_until >= $1)
ORDER BY tenant, call_id
LIMIT $3;

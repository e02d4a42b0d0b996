-- MySQL's own statements for runs.

-- name: runs/claimable
-- Runs with news at $1 that boot $2 may claim, those that waited longest first, at most $3; with a
-- DSL version up to $4, and none of those in $5.
SELECT r.tenant, r.run_id, r.step,
       r.claims + CASE WHEN r.owner_boot = $2 THEN 0 ELSE 1 END AS claims
FROM (
    SELECT tenant, news_of AS run_id FROM sends WHERE news_of IS NOT NULL
    UNION
    SELECT tenant, run_id FROM run_asks
    UNION
    SELECT tenant, run_id FROM runs WHERE alarm_at <= $1
) w
JOIN runs r ON r.tenant = w.tenant AND r.run_id = w.run_id
LEFT JOIN run_steps t ON t.tenant = r.tenant AND t.run_id = r.run_id AND t.n = r.step
WHERE (r.owner_boot IS NULL OR r.owner_boot = $2
       OR NOT EXISTS (
           SELECT 1 FROM boots b
           WHERE b.boot_id = r.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $1
       ))
  AND r.dsl_version <= $4
  AND NOT EXISTS (
      SELECT 1 FROM JSON_TABLE($5, '$[*]' COLUMNS (
          tenant INT PATH '$[0]', run VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[1]'
      )) a
      WHERE a.tenant = r.tenant AND a.run = hex(r.run_id) COLLATE utf8mb4_bin
  )
ORDER BY coalesce(t.at, r.created_at), r.tenant, r.run_id
LIMIT $3;

-- name: runs/write_nodes
-- Writes nodes, which are passed as one JSON array.
INSERT INTO run_nodes (tenant, run_id, path, n, state, node)
SELECT $1, $2, e.path, e.n, e.state, e.node
FROM JSON_TABLE($3, '$[*]' COLUMNS (
    path VARCHAR(700) CHARACTER SET utf8mb4 PATH '$.path', n BIGINT PATH '$.n', state VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.state',
    node JSON PATH '$'
)) e
ON DUPLICATE KEY UPDATE n = VALUES(n), state = VALUES(state), node = VALUES(node);

-- Reads a page of a run's nodes, in order. The prefix is compared byte by byte.
-- Index: run_nodes_order.
SELECT n.node FROM run_nodes n
WHERE n.tenant = $1::integer AND n.run_id = $2::uuid AND n.n > $3::bigint
  AND ($4::text IS NULL OR starts_with(n.path, $4::text))
ORDER BY n.n
LIMIT $5::bigint

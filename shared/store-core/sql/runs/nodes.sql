-- A page of a run's nodes in order, by run_nodes_order.
SELECT node FROM run_nodes
WHERE tenant = $1 AND run_id = $2 AND n > $3
  AND ($4 IS NULL OR instr(path, $4) = 1)
ORDER BY n
LIMIT $5;

-- A piece of a run's nodes in order, by run_nodes_order. The prefix is compared byte by byte.
SELECT node FROM run_nodes
WHERE tenant = $1 AND run_id = $2 AND n > $3
  AND ($4 IS NULL OR substr(path, 1, length($4)) = $4)
ORDER BY n
LIMIT $5;

-- Every node of every run.
SELECT tenant, run_id, node FROM run_nodes ORDER BY tenant, run_id, n;

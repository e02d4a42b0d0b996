-- Every node of every run, in order.
SELECT n.tenant, n.run_id, n.node FROM run_nodes n ORDER BY n.tenant, n.run_id, n.n

-- Removes the nodes of a run.
DELETE FROM run_nodes WHERE tenant = $1 AND run_id = $2;

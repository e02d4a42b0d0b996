-- Removes the asks of a run.
DELETE FROM run_asks WHERE tenant = $1 AND run_id = $2;

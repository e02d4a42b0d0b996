-- Removes the advances of a run.
DELETE FROM run_steps WHERE tenant = $1 AND run_id = $2;

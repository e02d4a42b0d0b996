-- A run, by id.
SELECT {run}
FROM runs
WHERE tenant = $1 AND run_id = $2;

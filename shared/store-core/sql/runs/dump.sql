-- Every run, with its owner and its advances so far.
SELECT tenant, run_id, name, status, spec, dsl_version, input, options, session_id, reports_to,
       depth, attempt, result, error, "usage", counts, alarm_at, created_at, started_at, finished_at,
       owner_boot, step
FROM runs
ORDER BY tenant, run_id;

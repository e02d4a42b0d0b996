-- A run.
SELECT tenant, run_id, name, status, spec, dsl_version, input, options, session_id, reports_to,
       depth, attempt, result, error, "usage", counts, alarm_at, created_at, started_at, finished_at
FROM runs
WHERE tenant = $1 AND run_id = $2;

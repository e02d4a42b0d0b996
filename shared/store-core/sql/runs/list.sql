-- A page of runs, newest first, by the primary key.
SELECT tenant, run_id, name, status, spec, dsl_version, input, options, session_id, reports_to,
       depth, attempt, result, error, "usage", counts, alarm_at, created_at, started_at, finished_at
FROM runs
WHERE tenant = $1 AND ($2 IS NULL OR run_id < $2) AND ($3 IS NULL OR status = $3)
  AND ($4 IS NULL OR session_id = $4)
ORDER BY run_id DESC
LIMIT $5;

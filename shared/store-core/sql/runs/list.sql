-- A page of runs, newest first, by the primary key.
SELECT {run}
FROM runs
WHERE tenant = $1 AND ($2 IS NULL OR run_id < $2) AND ($3 IS NULL OR status = $3)
  AND ($4 IS NULL OR session_id = $4)
ORDER BY run_id DESC
LIMIT $5;

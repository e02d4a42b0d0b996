-- A session's sends, newest first, older than $2, of status $3 or any, at most $4, by
-- sends_session.
SELECT tenant, session_id, send_id, position, status, waiting_on, stop_reason, input, options,
       agent_version, output_text, output, error, "usage", rounds, attempts, crashes,
       cancel_requested, reports_to, run_id, run_path,
    run_attempt, deadline_at, alarm_at, first_step, created_at, started_at,
       finished_at
FROM sends
WHERE tenant = $1 AND session_id = $5 AND ($2 IS NULL OR send_id < $2)
  AND ($3 IS NULL OR status = $3)
ORDER BY send_id DESC
LIMIT $4;

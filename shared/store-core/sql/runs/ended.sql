-- Ended leaves of a run that no advance has noted, oldest first, by sends_run_ended.
SELECT tenant, session_id, send_id, position, status, waiting_on, stop_reason, input, options,
       agent_version, output_text, output, error, "usage", rounds, attempts, crashes,
       cancel_requested, reports_to, run_id, run_path,
    run_attempt, deadline_at, alarm_at, first_step, created_at, started_at, finished_at
FROM sends
WHERE tenant = $1 AND run_id = $2 AND finished_at IS NOT NULL AND reported_at IS NULL
ORDER BY finished_at, send_id
LIMIT $3;

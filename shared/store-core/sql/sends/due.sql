-- Sends whose alarm is due at $1, oldest first, at most $2 behind the first $3, by sends_alarm.
SELECT tenant, session_id, send_id, position, status, waiting_on, stop_reason, input, options,
       agent_version, output_text, output, error, "usage", rounds, attempts, crashes,
       cancel_requested, reports_to, run_id, run_path,
    run_attempt, deadline_at, alarm_at, first_step, created_at, started_at,
       finished_at
FROM sends
WHERE alarm_at <= $1
ORDER BY alarm_at, send_id
LIMIT $2 OFFSET $3;

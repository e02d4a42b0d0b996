-- Final sends that a parent waits to hear of, oldest first, at most $1 behind the first $2, by sends_unreported.
SELECT tenant, session_id, send_id, position, status, waiting_on, stop_reason, input, options,
       agent_version, output_text, output, error, "usage", rounds, attempts, crashes,
       cancel_requested, reports_to, run_id, run_path,
    run_attempt, deadline_at, alarm_at, first_step, created_at, started_at,
       finished_at
FROM sends
WHERE finished_at IS NOT NULL AND reports_to IS NOT NULL AND reported_at IS NULL
ORDER BY finished_at, send_id
LIMIT $1 OFFSET $2;

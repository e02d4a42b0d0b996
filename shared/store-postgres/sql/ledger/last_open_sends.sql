-- Reads the last open sends of a session whose hot row is locked, at most $3: those without a place
-- first.
-- Index: sends_open.
SELECT
    0::bigint AS ord, s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on, s.stop_reason,
    s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage, s.rounds,
    s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at, s.first_step, s.created_at, s.started_at,
    s.finished_at
FROM sends s
WHERE s.tenant = $1::integer AND s.session_id = $2::uuid AND s.finished_at IS NULL
ORDER BY s.position DESC NULLS FIRST, s.send_id DESC
LIMIT $3::bigint

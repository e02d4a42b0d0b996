-- Reads every send in order.
SELECT
    0::bigint AS ord, s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on,
    s.stop_reason, s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage,
    s.rounds, s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at,
    s.first_step, s.created_at, s.started_at, s.finished_at
FROM sends s
ORDER BY s.tenant, s.session_id, s.send_id

-- Reads sends by id; no row for an unknown one.
-- Index: sends_pkey.
SELECT
    i.ord, s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on, s.stop_reason,
    s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage, s.rounds,
    s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at,
    s.first_step, s.created_at, s.started_at, s.finished_at
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, send_id, ord)
JOIN sends s ON s.tenant = i.tenant AND s.send_id = i.send_id

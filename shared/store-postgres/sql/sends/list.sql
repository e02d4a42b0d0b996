-- Reads a page of a tenant's sends, newest first.
-- Index: sends_pkey backwards; sends_session backwards for one session; sends_not_completed where $6
-- is false, as it may be for failed and cancelled ones.
SELECT
    0::bigint AS ord, s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on,
    s.stop_reason, s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage,
    s.rounds, s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at,
    s.first_step, s.created_at, s.started_at, s.finished_at
FROM sends s
WHERE s.tenant = $1::integer
  AND ($2::uuid IS NULL OR s.session_id = $2::uuid)
  AND ($3::text IS NULL OR s.status = $3::text)
  AND ($4::uuid IS NULL OR s.send_id < $4::uuid)
  AND ($6::boolean OR s.stop_reason <> 'end')
ORDER BY s.send_id DESC
LIMIT $5::bigint

-- Reads ended leaves of runs that are owned, oldest first, which no advance has noted; at most $3 of
-- each run.
-- Index: sends_run_ended.
SELECT
    i.ord, e.tenant, e.send_id, e.session_id, e.position, e.status, e.waiting_on, e.stop_reason,
    e.input, e.options, e.agent_version, e.output_text, e.output, e.error, e.usage, e.rounds,
    e.attempts, e.crashes, e.cancel_requested, e.reports_to, e.run_id, e.run_path,
    e.run_attempt, e.deadline_at, e.alarm_at, e.first_step, e.created_at, e.started_at,
    e.finished_at
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, run_id, ord)
CROSS JOIN LATERAL (
    SELECT
        s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on, s.stop_reason,
        '[]'::text AS input, '{}'::text AS options, s.agent_version, s.output_text, s.output,
        s.error, s.usage, s.rounds, s.attempts, s.crashes, s.cancel_requested, s.reports_to,
        s.run_id, s.run_path, s.run_attempt, s.deadline_at, s.alarm_at, s.first_step,
        s.created_at, s.started_at, s.finished_at
    FROM sends s
    WHERE s.tenant = i.tenant AND s.run_id = i.run_id
      AND s.run_id IS NOT NULL AND s.finished_at IS NOT NULL AND s.reported_at IS NULL
    ORDER BY s.finished_at, s.send_id
    LIMIT $3::bigint
) e
ORDER BY i.ord, e.finished_at, e.send_id

-- Reads the ended leaves of owned runs that no advance has taken into account, oldest first; at
-- most $3 per run.
-- Index: sends_run_ended.
SELECT
    i.ord, {e.send}
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

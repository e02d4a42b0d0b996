-- Reads the open sends of sessions whose hot rows are locked, by place, those without one behind.
-- Index: sends_open.
SELECT
    0::bigint AS ord, o.tenant, o.send_id, o.session_id, o.position, o.status, o.waiting_on,
    o.stop_reason, o.input, o.options, o.agent_version, o.output_text, o.output, o.error, o.usage,
    o.rounds, o.attempts, o.crashes, o.cancel_requested, o.reports_to, o.run_id, o.run_path,
    o.run_attempt, o.deadline_at, o.alarm_at,
    o.first_step, o.created_at, o.started_at, o.finished_at
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
CROSS JOIN LATERAL (
    SELECT
        s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on, s.stop_reason,
        s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage, s.rounds,
        s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at,
        s.first_step, s.created_at, s.started_at, s.finished_at
    FROM sends s
    WHERE s.tenant = i.tenant AND s.session_id = i.session_id AND s.finished_at IS NULL
    ORDER BY s.position NULLS LAST, s.send_id
    -- Keeps the planner from reading the open sends of all sessions at once.
    OFFSET 0
) o

-- Reads the open sends of sessions whose hot rows are locked, by place, those without one behind.
-- Index: sends_open.
SELECT
    0::bigint AS ord, s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on,
    s.stop_reason, s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage,
    s.rounds, s.attempts, s.crashes, s.cancel_requested, s.deadline_at, s.alarm_at, s.first_step,
    s.created_at, s.started_at, s.finished_at
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
JOIN sends s
    ON s.tenant = i.tenant AND s.session_id = i.session_id AND s.finished_at IS NULL
ORDER BY s.tenant, s.session_id, s.position NULLS LAST, s.send_id

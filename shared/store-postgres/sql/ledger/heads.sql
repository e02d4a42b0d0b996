-- Reads, of sessions whose hot rows are locked, the open sends with the first and the last place:
-- the active one, where there is one, is the first, and the one that was queued last is the last.
-- Index: sends_open, sends_pkey.
SELECT
    0::bigint AS ord, s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on,
    s.stop_reason, s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage,
    s.rounds, s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at,
    s.first_step, s.created_at, s.started_at, s.finished_at
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
CROSS JOIN LATERAL (
    (
        SELECT f.send_id FROM sends f
        WHERE f.tenant = i.tenant AND f.session_id = i.session_id
          AND f.finished_at IS NULL AND f.position IS NOT NULL
        ORDER BY f.position
        LIMIT 1
    )
    UNION
    (
        SELECT l.send_id FROM sends l
        WHERE l.tenant = i.tenant AND l.session_id = i.session_id
          AND l.finished_at IS NULL AND l.position IS NOT NULL
        ORDER BY l.position DESC
        LIMIT 1
    )
) o
CROSS JOIN LATERAL (
    SELECT
        w.tenant, w.send_id, w.session_id, w.position, w.status, w.waiting_on, w.stop_reason,
        w.input, w.options, w.agent_version, w.output_text, w.output, w.error, w.usage, w.rounds,
        w.attempts, w.crashes, w.cancel_requested, w.reports_to, w.run_id, w.run_path,
    w.run_attempt, w.deadline_at, w.alarm_at,
        w.first_step, w.created_at, w.started_at, w.finished_at
    FROM sends w
    WHERE w.tenant = i.tenant AND w.send_id = o.send_id
    -- Keeps the planner from looking only the tenant up.
    OFFSET 0
) s

-- The same as unreported.sql, of named sends. That they were not reported is spelled so that no
-- plan looks for them among all of those.
-- Index: sends_pkey, tool_calls_pkey.
WITH due AS MATERIALIZED (
    SELECT
        o.tenant, o.send_id, o.session_id, o.position, o.status, o.waiting_on, o.stop_reason,
        o.input, o.options, o.agent_version, o.output_text, o.output, o.error, o.usage, o.rounds,
        o.attempts, o.crashes, o.cancel_requested, o.reports_to, o.run_id, o.run_path,
    o.run_attempt, o.deadline_at, o.alarm_at,
        o.first_step, o.created_at, o.started_at, o.finished_at
    FROM (
        SELECT DISTINCT i.tenant, i.send_id
        FROM unnest($2::integer[], $3::uuid[]) AS i (tenant, send_id)
    ) w
    CROSS JOIN LATERAL (
        SELECT
            s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on, s.stop_reason,
            s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage,
            s.rounds, s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at,
            s.alarm_at, s.first_step, s.created_at, s.started_at, s.finished_at
        FROM sends s
        WHERE s.tenant = w.tenant AND s.send_id = w.send_id
          AND s.finished_at IS NOT NULL AND s.reports_to IS NOT NULL
          AND coalesce(s.reported_at, -1) = -1
        FOR NO KEY UPDATE OF s SKIP LOCKED
    ) o
    ORDER BY o.finished_at, o.send_id
    LIMIT $1::bigint OFFSET $4::bigint
)
SELECT
    0::bigint AS ord,
    d.tenant, d.send_id, d.session_id, d.position, d.status, d.waiting_on, d.stop_reason,
    d.input, d.options, d.agent_version, d.output_text, d.output, d.error, d.usage, d.rounds,
    d.attempts, d.crashes, d.cancel_requested, d.reports_to, d.run_id, d.run_path,
    d.run_attempt, d.deadline_at, d.alarm_at,
    d.first_step, d.created_at, d.started_at, d.finished_at,
    c.session_id AS parent_session, c.send_id AS parent_send, c.round AS parent_round
FROM due d
LEFT JOIN tool_calls c
    ON c.tenant = d.tenant AND c.call_id = d.reports_to
    -- The calls of a deleted session are gone, though they may still be there.
    AND EXISTS (
        SELECT FROM sessions p WHERE p.tenant = c.tenant AND p.session_id = c.session_id
    )
ORDER BY d.finished_at, d.send_id

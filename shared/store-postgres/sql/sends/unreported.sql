-- Locks final sends that a parent waits for and that were not reported, oldest first, but for those
-- that someone else reports; with the homes of the calls that they settle. A call is known even
-- when the child was deleted, and gone with its own session.
-- Index: sends_unreported, tool_calls_pkey.
WITH due AS MATERIALIZED (
    SELECT
        s.tenant, s.send_id, s.session_id, s.position, s.status, s.waiting_on, s.stop_reason,
        s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage, s.rounds,
        s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at,
        s.first_step, s.created_at, s.started_at, s.finished_at
    FROM sends s
    WHERE s.finished_at IS NOT NULL AND s.reports_to IS NOT NULL AND s.reported_at IS NULL
    ORDER BY s.finished_at, s.send_id
    LIMIT $1::bigint OFFSET $2::bigint
    FOR NO KEY UPDATE OF s SKIP LOCKED
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

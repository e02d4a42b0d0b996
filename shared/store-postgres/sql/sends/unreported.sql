-- Locks final sends that a parent waits for and that were not reported, oldest first, skipping
-- those that another transaction is reporting. Each comes with the home of the call that it
-- settles. A call is found even if the child was deleted, but not if its own session was.
-- Index: sends_unreported, tool_calls_pkey.
WITH due AS MATERIALIZED (
    SELECT
        {s.send}
    FROM sends s
    WHERE s.finished_at IS NOT NULL AND s.reports_to IS NOT NULL AND s.reported_at IS NULL
      AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = s.tenant)
    ORDER BY s.finished_at, s.send_id
    LIMIT $1::bigint OFFSET $2::bigint
    FOR NO KEY UPDATE OF s SKIP LOCKED
)
SELECT
    0::bigint AS ord,
    {d.send},
    c.session_id AS parent_session, c.send_id AS parent_send, c.round AS parent_round
FROM due d
LEFT JOIN tool_calls c
    ON c.tenant = d.tenant AND c.call_id = d.reports_to
    -- The calls of a deleted session count as gone, even if their rows still exist.
    AND EXISTS (
        SELECT FROM sessions p WHERE p.tenant = c.tenant AND p.session_id = c.session_id
    )
ORDER BY d.finished_at, d.send_id

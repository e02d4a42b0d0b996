-- The same as unreported.sql, for given sends. The test of `reported_at` is written so that no plan
-- searches the index of all unreported sends.
-- Index: sends_pkey, tool_calls_pkey.
WITH due AS MATERIALIZED (
    SELECT
        {o.send}
    FROM (
        SELECT DISTINCT i.tenant, i.send_id
        FROM unnest($2::integer[], $3::uuid[]) AS i (tenant, send_id)
    ) w
    CROSS JOIN LATERAL (
        SELECT
            {s.send}
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

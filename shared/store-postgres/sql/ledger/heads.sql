-- Reads, for sessions whose hot rows are locked, the open sends with the first and the last
-- position: the active send, if there is one, is the first, and the send that was queued last is
-- the last.
-- Index: sends_open, sends_pkey.
SELECT
    0::bigint AS ord, {s.send}
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
        {w.send}
    FROM sends w
    WHERE w.tenant = i.tenant AND w.send_id = o.send_id
    -- Keeps the planner from looking up the tenant alone.
    OFFSET 0
) s

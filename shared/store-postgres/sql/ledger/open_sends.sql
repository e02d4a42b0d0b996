-- Reads the open sends of sessions whose hot rows are locked, by place, those without one behind.
-- Index: sends_open.
SELECT
    0::bigint AS ord, {o.send}
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
CROSS JOIN LATERAL (
    SELECT
        {s.send}
    FROM sends s
    WHERE s.tenant = i.tenant AND s.session_id = i.session_id AND s.finished_at IS NULL
    ORDER BY s.position NULLS LAST, s.send_id
    -- Keeps the planner from reading the open sends of all sessions at once.
    OFFSET 0
) o

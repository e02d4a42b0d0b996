-- Counts the sessions that one created as its children and that have a send which is queued, runs or waits.
-- The subquery stays one of its own, so that each hot row is found by its whole key.
-- Indexes: sessions_children, the primary key of session_hot.
SELECT count(*) AS n
FROM sessions s
CROSS JOIN LATERAL (
    SELECT h.pending, h.active
    FROM session_hot h
    WHERE h.tenant = s.tenant AND h.session_id = s.session_id
    OFFSET 0
) h
WHERE s.tenant = $1::integer AND s.parent_session = $2::uuid AND (h.pending > 0 OR h.active > 0)

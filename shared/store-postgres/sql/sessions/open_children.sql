-- Counts the children of a session that have a send which is queued, runs or waits.
-- The subquery is kept separate by OFFSET 0, so that each hot row is looked up by its whole key.
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

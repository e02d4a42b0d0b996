-- Counts the children of a session that have queued sends.
-- The subquery is kept separate by OFFSET 0, so that each hot row is looked up by its whole key.
-- Indexes: sessions_children, the primary key of session_hot.
SELECT count(*) AS n
FROM sessions s
CROSS JOIN LATERAL (
    SELECT h.pending
    FROM session_hot h
    WHERE h.tenant = s.tenant AND h.session_id = s.session_id
    OFFSET 0
) h
WHERE s.tenant = $1::integer AND s.parent_session = $2::uuid AND h.pending > 0

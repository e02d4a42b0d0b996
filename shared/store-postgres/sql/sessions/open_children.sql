-- Counts the sessions that one created and that have sends which are not final.
-- Indexes: sessions_children, the primary key of session_hot.
SELECT count(*) AS n
FROM sessions s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
WHERE s.tenant = $1::integer AND s.parent_session = $2::uuid AND h.pending > 0

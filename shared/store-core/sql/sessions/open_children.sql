-- How many children of a session have queued sends, by sessions_children and the primary key of
-- session_hot.
SELECT count(*) AS n
FROM sessions s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
WHERE s.tenant = $1 AND s.parent_session = $2 AND h.pending > 0;

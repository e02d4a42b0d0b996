-- How many of the sessions that one created as its children have sends that are not final, by
-- sessions_children and the primary key of session_hot.
SELECT count(*) AS n
FROM sessions s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
WHERE s.tenant = $1 AND s.parent_session = $2 AND h.pending > 0;

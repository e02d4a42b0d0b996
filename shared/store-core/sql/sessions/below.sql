-- Whether the session $2 is $3 or is below it, by at most 16 levels. Deleted sessions do not count.
WITH RECURSIVE up (session_id, parent_session, steps) AS (
    SELECT session_id, parent_session, 0 FROM sessions WHERE tenant = $1 AND session_id = $2
    UNION ALL
    SELECT c.session_id, c.parent_session, up.steps + 1
    FROM up
    JOIN sessions c ON c.tenant = $1 AND c.session_id = up.parent_session
    WHERE up.steps < 16
)
SELECT EXISTS (SELECT 1 FROM up WHERE session_id = $3);

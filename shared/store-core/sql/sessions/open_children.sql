-- How many children of a session have a send that is queued, runs or waits, by sessions_children
-- and sends_open.
SELECT count(*) AS n
FROM sessions s
WHERE s.tenant = $1 AND s.parent_session = $2 AND EXISTS (
    SELECT 1 FROM sends o
    WHERE o.tenant = s.tenant AND o.session_id = s.session_id AND o.finished_at IS NULL
      AND o.position IS NOT NULL
);

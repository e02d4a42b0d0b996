-- Finds sessions that have steps which were committed within a time. Asked of a planner that may read an index in pieces.
-- What is within the time is read first: by the sessions' order all steps would be.
-- Index: steps_at.
SELECT t.tenant, t.session_id, min(t.n) AS first_n, max(t.n) AS last_n
FROM (
    SELECT s.tenant, s.session_id, s.n
    FROM steps s
    WHERE s.at >= $1::bigint AND s.at < $2::bigint
    OFFSET 0
) t
WHERE (t.tenant, t.session_id) > ($3::integer, $4::uuid)
GROUP BY t.tenant, t.session_id
ORDER BY t.tenant, t.session_id
LIMIT $5::bigint

-- Finds sessions with steps that were committed in a time range. Needs a planner that may use
-- bitmap scans. The time range is read first: in the order of sessions, all steps would be read.
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

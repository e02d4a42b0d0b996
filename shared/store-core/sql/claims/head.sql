-- The first open send that has a position, by sends_open, and the agent version that it is pinned
-- to or would be pinned to now; and whether its tenant has a limit of sends in flight.
SELECT {s.send},
       a.version, a.spec,
       EXISTS (SELECT 1 FROM seat_limits l WHERE l.tenant = s.tenant) AS seated
FROM sends s
JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
JOIN agents a ON a.tenant = s.tenant AND a.session_id = s.session_id
             AND a.version = coalesce(s.agent_version, c.agent_version)
WHERE s.tenant = $1 AND s.session_id = $2 AND s.finished_at IS NULL AND s.position IS NOT NULL
ORDER BY s.position
LIMIT 1;

-- The first open send that has its place, by sends_open, and the agent that it is pinned to or
-- would be pinned to now.
SELECT s.tenant, s.session_id, s.send_id, s.position, s.status, s.waiting_on, s.stop_reason,
       s.input, s.options, s.agent_version, s.output_text, s.output, s.error, s.usage, s.rounds,
       s.attempts, s.crashes, s.cancel_requested, s.reports_to, s.run_id, s.run_path,
    s.run_attempt, s.deadline_at, s.alarm_at,
       s.first_step, s.created_at, s.started_at, s.finished_at,
       a.version, a.spec
FROM sends s
JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
JOIN agents a ON a.tenant = s.tenant AND a.session_id = s.session_id
             AND a.version = coalesce(s.agent_version, c.agent_version)
WHERE s.tenant = $1 AND s.session_id = $2 AND s.finished_at IS NULL AND s.position IS NOT NULL
ORDER BY s.position
LIMIT 1;

-- The session that a lease holds, locked, with the scheduling columns of the send that runs under
-- it. The session is locked first, as everywhere.
SELECT {h.hot},
       s.position, s.status, s.waiting_on, s.options, s.deadline_at, s.alarm_at, s.rounds, s.attempts,
       s.crashes, s.cancel_requested, s.started_at, s.finished_at
FROM session_hot h
CROSS JOIN sends s ON s.tenant = h.tenant AND s.send_id = $5 AND s.session_id = h.session_id
WHERE h.tenant = $1 AND h.session_id = $2 AND h.token = $3 AND h.owner_boot = $4
  AND s.status = 'running'
{lock};

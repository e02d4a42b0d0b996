-- The version of a session's agent, if the worker $3 may be granted the session at $4: its lease is
-- valid, it serves the session's pool $5, and the tenant has no limit of sends in flight.
SELECT s.agent_version
FROM sessions s JOIN boots b ON b.boot_id = $3
WHERE s.tenant = $1 AND s.session_id = $2
  AND b.dead_at IS NULL AND b.lease_until >= $4 AND b.pool = $5
  AND NOT EXISTS (SELECT 1 FROM seat_limits l WHERE l.tenant = s.tenant);

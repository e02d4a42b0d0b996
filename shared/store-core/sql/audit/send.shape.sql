-- Sends whose columns do not match their status. The table's checks reject some of these, too, but
-- a file that was changed by other means may contain them.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), 'status', status)
FROM sends
WHERE (finished_at IS NOT NULL) <> (status IN ('completed', 'failed', 'cancelled'))
   OR (stop_reason IS NOT NULL) <> (status IN ('completed', 'failed', 'cancelled'))
   OR (waiting_on IS NOT NULL) <> (status = 'waiting')
   OR (error IS NOT NULL) <> (status = 'failed')
   OR (finished_at IS NOT NULL AND alarm_at IS NOT NULL)
   OR (status = 'queued' AND started_at IS NOT NULL)
   OR (status = 'queued' AND position IS NULL AND alarm_at IS NULL)
   OR (status IN ('running', 'waiting', 'completed')
       AND (started_at IS NULL OR agent_version IS NULL OR position IS NULL))
ORDER BY tenant, session_id, send_id
LIMIT $1;

-- Sends that were final before $3, that a parent waits for, and that were not reported. A parent
-- that is gone does not count.
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)),
                   'parent', 'ses_' || lower(hex(c.session_id)), 'call', c.call_id)
FROM sends s
JOIN tool_calls c ON c.tenant = s.tenant AND c.call_id = s.reports_to
JOIN sessions p ON p.tenant = c.tenant AND p.session_id = c.session_id
WHERE s.finished_at IS NOT NULL AND s.reports_to IS NOT NULL AND s.reported_at IS NULL
  AND s.finished_at < $3
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;

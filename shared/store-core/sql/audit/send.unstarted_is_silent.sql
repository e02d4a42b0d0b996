-- Messages of sends that never started.
SELECT json_object('session', 'ses_' || lower(hex(m.session_id)),
                   'send', 'snd_' || lower(hex(m.send_id)), 'seq', m.seq)
FROM messages m
JOIN sends s ON s.tenant = m.tenant AND s.send_id = m.send_id AND s.session_id = m.session_id
WHERE s.started_at IS NULL AND m.epoch > 0
ORDER BY m.tenant, m.session_id, m.seq
LIMIT $1;

-- Hot rows whose `pending` is not the number of queued sends with a position.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)),
                   'pending', h.pending, 'queued', count(s.send_id))
FROM session_hot h
LEFT JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id
                 AND s.finished_at IS NULL AND s.status = 'queued' AND s.position IS NOT NULL
GROUP BY h.tenant, h.session_id
HAVING count(s.send_id) <> max(h.pending)
ORDER BY h.tenant, h.session_id
LIMIT $1;

-- Sessions without an owner that are ready without work, or have work and are not ready. While a
-- send waits, the session may be either: what it waits for may have arrived.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)), 'ready_since', h.ready_since,
                   'running', coalesce(sum(s.status = 'running'), 0),
                   'queued', coalesce(sum(s.status = 'queued'), 0))
FROM session_hot h
LEFT JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id
                 AND s.finished_at IS NULL AND s.position IS NOT NULL
WHERE h.owner_boot IS NULL
GROUP BY h.tenant, h.session_id
HAVING coalesce(sum(s.status = 'waiting'), 0) = 0
   AND (max(h.ready_since) IS NOT NULL) <> (count(s.send_id) > 0)
ORDER BY h.tenant, h.session_id
LIMIT $1;

-- Messages and steps under an epoch that their session never had.
SELECT json_object('session', 'ses_' || lower(hex(w.session_id)), w.kind, w.number,
                   'epoch', w.epoch, 'granted', h.epoch)
FROM (
    SELECT tenant, session_id, 'seq' AS kind, seq AS number, epoch FROM messages
    UNION ALL
    SELECT tenant, session_id, 'step', n, epoch FROM steps
) w
LEFT JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
WHERE w.epoch < 0 OR w.epoch > coalesce(h.epoch, -1)
ORDER BY w.tenant, w.session_id, w.kind, w.number
LIMIT $1;

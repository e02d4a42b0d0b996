-- Sessions with more than one running or waiting send.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'running', sum(status = 'running'), 'waiting', sum(status = 'waiting'))
FROM sends
WHERE finished_at IS NULL AND status IN ('running', 'waiting')
GROUP BY tenant, session_id
HAVING count(*) > 1
ORDER BY tenant, session_id
LIMIT $1;

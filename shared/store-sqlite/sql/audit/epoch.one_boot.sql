-- Grants whose steps come from several boots.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'epoch', epoch, 'boots', count(DISTINCT boot))
FROM steps
WHERE epoch > 0
GROUP BY tenant, session_id, epoch
HAVING count(DISTINCT boot) > 1
ORDER BY tenant, session_id, epoch
LIMIT $1;

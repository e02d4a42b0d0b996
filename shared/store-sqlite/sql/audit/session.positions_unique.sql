-- Places that several sends of a session have, or that were never drawn.
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'position', s.position, 'sends', count(*))
FROM sends s
LEFT JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
WHERE s.position IS NOT NULL
GROUP BY s.tenant, s.session_id, s.position
HAVING count(*) > 1 OR s.position < 1 OR s.position >= coalesce(max(h.next_position), 1)
ORDER BY s.tenant, s.session_id, s.position
LIMIT $1;

-- Positions that several sends or inbox items of a session have, or that were never assigned.
SELECT json_object('session', 'ses_' || lower(hex(p.session_id)),
                   'position', p.position, 'times', count(*))
FROM (
    SELECT tenant, session_id, position FROM sends WHERE position IS NOT NULL
    UNION ALL
    SELECT tenant, session_id, n FROM inbox
) p
LEFT JOIN session_hot h ON h.tenant = p.tenant AND h.session_id = p.session_id
GROUP BY p.tenant, p.session_id, p.position
HAVING count(*) > 1 OR p.position < 1 OR p.position >= coalesce(max(h.next_position), 1)
ORDER BY p.tenant, p.session_id, p.position
LIMIT $1;

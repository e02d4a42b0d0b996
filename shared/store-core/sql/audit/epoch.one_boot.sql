-- Epochs with steps of several boots; the current epoch counts the owner, too.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'epoch', epoch, 'boots', count(DISTINCT boot))
FROM (
    SELECT tenant, session_id, epoch, boot FROM steps WHERE epoch > 0
    UNION ALL
    SELECT tenant, session_id, epoch, owner_boot FROM session_hot WHERE owner_boot IS NOT NULL
) found
GROUP BY tenant, session_id, epoch
HAVING count(DISTINCT boot) > 1
ORDER BY tenant, session_id, epoch
LIMIT $1;

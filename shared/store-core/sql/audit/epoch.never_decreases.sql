-- Messages and steps with a lower epoch than the one before them. Epoch 0 is no grant.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), kind, number,
                   'epoch', epoch, 'before', earlier)
FROM (
    SELECT tenant, session_id, 'seq' AS kind, seq AS number, epoch,
           lag(epoch) OVER (PARTITION BY tenant, session_id ORDER BY seq) AS earlier
    FROM messages WHERE epoch <> 0
    UNION ALL
    SELECT tenant, session_id, 'step', n, epoch,
           lag(epoch) OVER (PARTITION BY tenant, session_id ORDER BY n)
    FROM steps WHERE epoch <> 0
) found
WHERE epoch < earlier
ORDER BY tenant, session_id, kind, number
LIMIT $1;

-- Messages, steps and started calls under an epoch that their session never had; and steps with a
-- higher epoch than the send's previous step that neither resume nor finish the send.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), kind, number, 'epoch', epoch)
FROM (
    SELECT w.tenant, w.session_id, w.kind, w.number, w.epoch
    FROM (
        SELECT tenant, session_id, 'seq' AS kind, seq AS number, epoch FROM messages
        UNION ALL
        SELECT tenant, session_id, 'step', n, epoch FROM steps
    ) w
    LEFT JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
    WHERE w.epoch < 0 OR w.epoch > coalesce(h.epoch, -1)
    UNION ALL
    SELECT c.tenant, c.session_id, 'call', c.call_id, c.started_epoch
    FROM tool_calls c
    LEFT JOIN session_hot h ON h.tenant = c.tenant AND h.session_id = c.session_id
    WHERE c.started_epoch < 1 OR c.started_epoch > coalesce(h.epoch, -1)
    UNION ALL
    SELECT tenant, session_id, 'step', n, epoch
    FROM (
        SELECT tenant, session_id, n, kind, epoch,
               lag(epoch) OVER (PARTITION BY tenant, session_id, send_id ORDER BY n) AS earlier
        FROM steps
        WHERE epoch > 0
    ) found
    WHERE epoch > earlier AND kind NOT IN ('resumed', 'finished')
) found
ORDER BY tenant, session_id, kind, number
LIMIT $1;

-- Items with a fate but no time of it, or the reverse; items that were delivered to an active send
-- and name no message, or one that does not exist although it was not pruned; and other items that
-- name a message.
SELECT json_object('session', 'ses_' || lower(hex(i.session_id)), 'item', i.item_id, 'fate', i.fate)
FROM inbox i
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
WHERE h.lifecycle <> 2
  AND ((i.settled_at IS NULL) <> (i.fate = 'pending')
       OR (i.seq IS NOT NULL) <> (i.fate = 'delivered' AND i.mode <> 'coalesce')
       OR (i.seq >= (SELECT c.first_seq FROM sessions c
                     WHERE c.tenant = i.tenant AND c.session_id = i.session_id)
           AND NOT EXISTS (SELECT 1 FROM messages m
                           WHERE m.tenant = i.tenant AND m.session_id = i.session_id
                             AND m.seq = i.seq)))
ORDER BY i.tenant, i.session_id, i.n
LIMIT $1;

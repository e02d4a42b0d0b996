-- An item.
SELECT tenant, session_id, item_id, n, kind, mode, send_id, content, fate, seq, created_at,
       settled_at
FROM inbox
WHERE tenant = $1 AND session_id = $2 AND item_id = $3;

-- Every inbox item, by session, in order.
SELECT tenant, session_id, item_id, n, kind, mode, send_id, content, fate, seq, created_at,
       settled_at
FROM inbox
ORDER BY tenant, session_id, n;

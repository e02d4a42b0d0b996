-- Every inbox item, by session, in order.
SELECT tenant, session_id, {item}
FROM inbox
ORDER BY tenant, session_id, n;

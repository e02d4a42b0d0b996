-- Reads every inbox item in order.
SELECT
    n.tenant, n.session_id, n.item_id, n.n, n.kind, n.mode, n.send_id, n.content, n.fate, n.seq,
    n.created_at, n.settled_at
FROM inbox n
ORDER BY n.tenant, n.session_id, n.n

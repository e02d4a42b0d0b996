-- Reads every inbox item in order.
SELECT
    n.tenant, n.session_id, {n.item}
FROM inbox n
ORDER BY n.tenant, n.session_id, n.n

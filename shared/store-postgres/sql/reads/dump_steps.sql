-- Reads every step in order.
SELECT
    t.tenant, t.session_id, t.n, t.send_id, t.kind, t.epoch, t.boot, t.at, t.refs
FROM steps t
ORDER BY t.tenant, t.session_id, t.n

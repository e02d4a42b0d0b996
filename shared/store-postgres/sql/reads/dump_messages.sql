-- Reads every message in order.
SELECT
    m.tenant, m.session_id, {m.message}
FROM messages m
ORDER BY m.tenant, m.session_id, m.seq

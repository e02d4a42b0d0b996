-- Reads every step in order.
SELECT
    t.tenant, t.session_id, {t.step}
FROM steps t
ORDER BY t.tenant, t.session_id, t.n

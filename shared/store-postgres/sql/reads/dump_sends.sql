-- Reads every send in order.
SELECT
    0::bigint AS ord, {s.send}
FROM sends s
ORDER BY s.tenant, s.session_id, s.send_id

-- Reads every usage row in order.
SELECT u.tenant, u.session_id, u.send_id, u.round, u.attempt, u.usage
FROM usage_rows u
ORDER BY u.tenant, u.session_id, u.send_id, u.round, u.attempt

-- Every step, by session.
SELECT tenant, session_id, {step}
FROM steps
ORDER BY tenant, session_id, n;

-- Every send, by session.
SELECT {send}
FROM sends
ORDER BY tenant, session_id, send_id;

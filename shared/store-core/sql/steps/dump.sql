-- Every step, by session.
SELECT tenant, session_id, n, send_id, kind, epoch, boot, at, refs
FROM steps
ORDER BY tenant, session_id, n;

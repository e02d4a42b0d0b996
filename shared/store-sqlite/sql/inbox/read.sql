-- A piece of an inbox behind $3, at most $4.
SELECT tenant, session_id, item_id, n, kind, mode, send_id, content, fate, seq, created_at,
       settled_at
FROM inbox
WHERE tenant = $1 AND session_id = $2 AND n > $3
ORDER BY n
LIMIT $4;

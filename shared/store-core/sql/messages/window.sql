-- The part of a window that a cache lacks. The window begins at $3, or, if a tool's message is
-- there, at the message that asked; the cache holds the messages from $4 up to, but not including,
-- $5.
WITH w (first) AS MATERIALIZED (
    SELECT coalesce((SELECT asked_at_seq FROM messages
                     WHERE tenant = $1 AND session_id = $2 AND seq = $3 AND role = 'tool'), $3)
)
SELECT m.tenant, m.session_id, {m.message}
FROM messages m
WHERE m.tenant = $1 AND m.session_id = $2
  AND m.seq >= (SELECT CASE WHEN $4 <= w.first AND $5 > w.first THEN $5 ELSE w.first END FROM w)
ORDER BY m.seq;

-- MySQL's own statements for sessions. Whoever changes a session locks its hot row first.

-- name: sessions/list
-- Sessions, newest first: older than $2, of status $4, of agent $5, with the members of $6 in their
-- metadata.
SELECT * FROM (
    SELECT c.tenant, c.session_id,
           CASE
               WHEN h.lifecycle = 1 THEN 'closed'
               WHEN EXISTS (SELECT 1 FROM boots b
                            WHERE b.boot_id = h.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $3)
                   THEN 'running'
               WHEN h.ready_since IS NOT NULL THEN 'queued'
               WHEN 'waiting' = (SELECT s.status FROM sends s
                                 WHERE s.tenant = c.tenant AND s.session_id = c.session_id
                                   AND s.finished_at IS NULL AND s.position IS NOT NULL
                                 ORDER BY s.position LIMIT 1)
                   THEN 'waiting'
               ELSE 'idle'
           END AS status,
           c.agent_version, c.metadata, c.created_at, c.updated_at, h.next_seq - c.first_seq AS messages,
           c.first_seq, a.spec, c.parent_session, c.parent_call, c.root_session, c.depth
    FROM sessions c
    JOIN session_hot h ON h.tenant = c.tenant AND h.session_id = c.session_id
    JOIN agents a ON a.tenant = c.tenant AND a.session_id = c.session_id
                 AND a.version = c.agent_version
    WHERE c.tenant = $1
      AND ($2 IS NULL OR c.session_id < $2)
      AND ($5 IS NULL OR c.agent_name = $5)
      AND JSON_CONTAINS(c.metadata, $6)
      -- JSON_CONTAINS also matches a list that contains the text: such members have no scalar here.
      AND NOT EXISTS (
          SELECT 1
          FROM JSON_TABLE(JSON_KEYS(c.metadata), '$[*]' COLUMNS (
              place FOR ORDINALITY, name VARCHAR(700) CHARACTER SET utf8mb4 PATH '$'
          )) k
          JOIN JSON_TABLE(JSON_EXTRACT(c.metadata, '$.*'), '$[*]' COLUMNS (
              place FOR ORDINALITY, scalar LONGTEXT CHARACTER SET utf8mb4 PATH '$'
          )) v ON v.place = k.place
          WHERE v.scalar IS NULL AND JSON_CONTAINS(JSON_KEYS($6), JSON_QUOTE(k.name))
      )
) listed
WHERE ($4 IS NULL OR status = $4)
ORDER BY session_id DESC
LIMIT $7;

-- A tenant's sessions at $3, newest first, older than $2, at most $7. If given: of status $4, with
-- an agent named $5, and with the members of $6 in their metadata, as the same strings.
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
       c.agent_version, c.metadata, c.created_at, c.updated_at, h.next_seq - c.first_seq AS messages, c.first_seq, a.spec,
       c.parent_session, c.parent_call, c.root_session, c.depth
FROM sessions c
JOIN session_hot h ON h.tenant = c.tenant AND h.session_id = c.session_id
JOIN agents a ON a.tenant = c.tenant AND a.session_id = c.session_id AND a.version = c.agent_version
WHERE c.tenant = $1
  AND ($2 IS NULL OR c.session_id < $2)
  AND ($4 IS NULL OR status = $4)
  AND ($5 IS NULL OR c.agent_name = $5)
  AND NOT EXISTS (
      SELECT 1 FROM json_each($6) wanted
      WHERE NOT EXISTS (SELECT 1 FROM json_each(c.metadata) m
                        WHERE m.key = wanted.key AND m.type = 'text' AND m.value = wanted.value)
  )
ORDER BY c.session_id DESC
LIMIT $7;

-- What MySQL says differently about sessions. Whoever changes one locks its hot row first.

-- name: sessions/lock
-- Nobody else changes the session until the transaction ends; no row where someone else has it locked.
SELECT epoch FROM session_hot WHERE tenant = $1 AND session_id = $2 FOR UPDATE SKIP LOCKED;

-- name: sessions/load
-- A session that is not deleted, locked. The second statement reads what others committed while the
-- first one waited.
SELECT epoch FROM session_hot WHERE tenant = $1 AND session_id = $2 FOR UPDATE;
SELECT {h.hot},
       EXISTS (SELECT 1 FROM boots b
               WHERE b.boot_id = h.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $3) AS owner_lives,
       (SELECT s.status FROM sends s
        WHERE s.tenant = h.tenant AND s.session_id = h.session_id
          AND s.finished_at IS NULL AND s.position IS NOT NULL
        ORDER BY s.position LIMIT 1) AS head_status,
       EXISTS (SELECT 1 FROM sends s
               WHERE s.tenant = h.tenant AND s.session_id = h.session_id AND s.finished_at IS NULL) AS busy
FROM session_hot h
WHERE h.tenant = $1 AND h.session_id = $2 AND h.lifecycle <> 2;

-- name: sessions/held
-- The session that a lease has, locked, with the scheduling columns of the send that runs under it.
SELECT {h.hot},
       s.position, s.status, s.waiting_on, s.options, s.deadline_at, s.alarm_at, s.rounds, s.attempts,
       s.crashes, s.cancel_requested, s.started_at, s.finished_at
FROM session_hot h
STRAIGHT_JOIN sends s ON s.tenant = h.tenant AND s.send_id = $5 AND s.session_id = h.session_id
WHERE h.tenant = $1 AND h.session_id = $2 AND h.token = $3 AND h.owner_boot = $4
  AND s.status = 'running'
FOR UPDATE;

-- name: sessions/last_write
-- What the last write under a lease led to.
SELECT h.next_seq, h.pending, h.signals, h.context_version,
       coalesce((SELECT max(CASE n.mode WHEN 'interrupt' THEN 6 ELSE 2 END) FROM inbox n
                 WHERE n.tenant = $1 AND n.session_id = $2 AND n.fate = 'pending'), 0) AS inbox_signals,
       t.n, t.at, CAST(JSON_VALUE(t.refs, '$.first_seq') AS SIGNED) AS first_seq
FROM session_hot h
JOIN steps t ON t.tenant = h.tenant AND t.session_id = h.session_id
WHERE h.tenant = $1 AND h.session_id = $2 AND h.token = $3 AND h.owner_boot = $4
  AND h.writes = $6 + 1
  AND t.send_id = $5 AND t.epoch = h.epoch AND t.kind <> 'resumed'
ORDER BY t.n DESC
LIMIT 1;

-- name: sessions/list
-- Sessions, newest first: behind $2, of status $4, of agent $5, with the members of $6 in their
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
      -- A list contains each of its texts, but is none of them: such members have no scalar here.
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

-- name: sessions/mark
-- A session is deleted: its cold row goes, and what is left of it is due to be removed.
DELETE FROM sessions WHERE tenant = $1 AND session_id = $2;
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $3, $3)
ON DUPLICATE KEY UPDATE due_at = VALUES(due_at), deleted_at = VALUES(deleted_at);

-- name: sessions/stage
-- A session whose messages come page by page: as one that was deleted, until the last page.
INSERT INTO session_hot (tenant, session_id, pool, lifecycle) VALUES ($1, $2, $3, 2)
ON DUPLICATE KEY UPDATE pool = pool;
INSERT INTO erasures (tenant, session_id, due_at, deleted_at) VALUES ($1, $2, $4, $5)
ON DUPLICATE KEY UPDATE due_at = due_at;

-- name: sessions/usage
-- What a session and those below it cost, by model and purpose.
WITH RECURSIVE tree (session_id, own) AS (
    SELECT session_id, 1 FROM sessions WHERE tenant = $1 AND session_id = $2
    UNION ALL
    SELECT s.session_id, 0
    FROM tree t
    JOIN sessions s ON s.tenant = $1 AND s.parent_session = t.session_id
)
SELECT
    (SELECT count(*) FROM tree) AS sessions, t.own, r.model, r.purpose, count(r.model) AS calls,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.input_tokens')), 0) AS SIGNED) AS input_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.output_tokens')), 0) AS SIGNED) AS output_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.cache_read_tokens')), 0) AS SIGNED) AS cache_read_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.cache_write_tokens')), 0) AS SIGNED) AS cache_write_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.reasoning_tokens')), 0) AS SIGNED) AS reasoning_tokens,
    CAST(sum(JSON_VALUE(r."usage", '$.cost_usd')) AS DOUBLE) AS cost_usd,
    coalesce(max(JSON_VALUE(r."usage", '$.estimated') IN ('true', '1')), 0) AS estimated
FROM tree t
LEFT JOIN sends d ON d.tenant = $1 AND d.session_id = t.session_id
LEFT JOIN usage_rows r ON r.tenant = d.tenant AND r.send_id = d.send_id
GROUP BY t.own, r.model, r.purpose
ORDER BY t.own DESC, r.model, r.purpose;

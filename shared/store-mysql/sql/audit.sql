-- The audit's queries where MySQL says them differently: no `->>`, no hints, GREATEST and LEAST, and a name
-- for each derived table.

-- name: audit/boot.in_flight
-- Workers that own more sessions than they were at work for when they last renewed their lease, of
-- those that they had owned for longer than the bound. A session is another grant's, or goes on, with
-- a step of its send.
SELECT json_object('boot', 'bot_' || lower(hex(boot_id)), 'name', name,
                   'in_flight', in_flight, 'owned', count(*))
FROM (
    SELECT w.boot_id, w.name, w.in_flight, w.lease_until - w.lease_ms - ($4 - $2) AS earlier,
           GREATEST(s.started_at,
               coalesce((SELECT max(t.at) FROM steps t
                         WHERE t.tenant = s.tenant AND t.session_id = s.session_id
                           AND t.send_id = s.send_id), s.started_at)) AS since
    FROM sends s
    JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
    JOIN boots w ON w.boot_id = h.owner_boot
    WHERE s.finished_at IS NULL AND s.status = 'running' AND w.role = 'worker'
      AND w.concurrency > 0 AND w.dead_at IS NULL
      -- A renewal in the future is one by a clock that was set back since.
      AND $4 BETWEEN w.lease_until - w.lease_ms AND w.lease_until
) found
WHERE since < earlier
GROUP BY boot_id, name, in_flight
HAVING count(*) > in_flight
ORDER BY boot_id
LIMIT $1;

-- name: audit/budget.kept
-- Sends that took more rounds, used more before their last answer, or set aside more than their budget
-- has; and completed ones with something set aside for a child that reported to them, unless others work
-- on below that one. A send whose budget a hook has let it exceed is left out.
WITH capped AS (
    SELECT tenant, session_id, send_id, rounds, JSON_EXTRACT(options, '$.budget') AS budget
    FROM sends
    WHERE (JSON_EXTRACT(options, '$.budget.rounds') IS NOT NULL
           OR JSON_EXTRACT(options, '$.budget.tokens') IS NOT NULL
           OR JSON_EXTRACT(options, '$.budget.cost_usd') IS NOT NULL)
      AND coalesce(JSON_VALUE("usage", '$.shown.sent_back.unpriced_before'), 0) = 0
), ids AS (
    SELECT s.tenant, s.session_id, s.send_id, s.status, k.call_id,
           JSON_EXTRACT(s."usage", '$.held') AS held
    FROM sends s, JSON_TABLE(JSON_KEYS(s."usage", '$.held'), '$[*]' COLUMNS (
        call_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$'
    )) k
    WHERE JSON_EXTRACT(s."usage", '$.held') IS NOT NULL
), held AS (
    SELECT tenant, session_id, send_id, status, call_id,
           JSON_VALUE(held, concat('$."', call_id, '".tokens')) AS tokens,
           JSON_VALUE(held, concat('$."', call_id, '".rounds')) AS rounds,
           JSON_VALUE(held, concat('$."', call_id, '".nano_usd')) AS nano_usd
    FROM ids
), aside AS (
    SELECT tenant, send_id, CAST(sum(tokens) AS SIGNED) AS tokens, CAST(sum(rounds) AS SIGNED) AS rounds
    FROM held
    GROUP BY tenant, send_id
), answers AS (
    SELECT u.tenant, u.send_id,
           JSON_VALUE(u."usage", '$.input_tokens') + JSON_VALUE(u."usage", '$.output_tokens') AS tokens,
           row_number() OVER (PARTITION BY u.tenant, u.send_id
                              ORDER BY u.round DESC, u.attempt DESC) AS from_last
    FROM usage_rows u
    JOIN capped c ON c.send_id = u.send_id AND c.tenant = u.tenant
    WHERE u.round <> -1
), earlier AS (
    SELECT tenant, send_id, CAST(sum(tokens) AS SIGNED) AS tokens
    FROM answers
    WHERE from_last > 1
    GROUP BY tenant, send_id
)
SELECT found FROM (
    SELECT s.tenant, s.session_id, s.send_id,
           json_object('session', 'ses_' || lower(hex(s.session_id)),
                       'send', 'snd_' || lower(hex(s.send_id)), 'rounds', s.rounds + coalesce(u.rounds, 0),
                       'tokens', b.tokens, 'held', u.tokens) AS found
    FROM capped s
    LEFT JOIN aside u ON u.send_id = s.send_id AND u.tenant = s.tenant
    LEFT JOIN earlier b ON b.send_id = s.send_id AND b.tenant = s.tenant
    WHERE s.rounds + coalesce(u.rounds, 0) > JSON_VALUE(s.budget, '$.rounds') + 0
       OR u.tokens > JSON_VALUE(s.budget, '$.tokens') + 0
       OR b.tokens > JSON_VALUE(s.budget, '$.tokens') + 0
    UNION ALL
    SELECT h.tenant, h.session_id, h.send_id,
           json_object('session', 'ses_' || lower(hex(h.session_id)),
                       'send', 'snd_' || lower(hex(h.send_id)), 'call', h.call_id,
                       'held', h.tokens)
    FROM held h
    JOIN tool_calls c ON c.tenant = h.tenant AND c.call_id = h.call_id COLLATE utf8mb4_bin
                     AND c.session_id = h.session_id
    WHERE h.status = 'completed' AND (h.tokens > 0 OR h.nano_usd > 0)
      AND c.name = 'spawn_agent'
      AND JSON_VALUE(c.result, '$.value.status') IN ('completed', 'failed')
      AND JSON_EXTRACT(c.result, '$.value.kept') IS NULL
) violations
ORDER BY tenant, session_id, send_id
LIMIT $1;

-- name: audit/call.asked
-- Calls that no message of their send asks for. The cast lets the join use an index of its own.
WITH asked AS (
    SELECT m.tenant, m.session_id, m.send_id, c.call_id
    FROM messages m, JSON_TABLE(m.tool_calls, '$[*]' COLUMNS (
        place FOR ORDINALITY, call_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.id'
    )) c
    WHERE m.tool_calls IS NOT NULL
)
SELECT json_object('session', 'ses_' || lower(hex(t.session_id)), 'call', t.call_id)
FROM tool_calls t
JOIN sessions s ON s.tenant = t.tenant AND s.session_id = t.session_id
LEFT JOIN asked a ON a.call_id = t.call_id COLLATE utf8mb4_bin AND a.tenant = t.tenant
                 AND a.session_id = t.session_id AND a.send_id = t.send_id
WHERE a.call_id IS NULL
ORDER BY t.tenant, t.session_id, t.call_id
LIMIT $1;

-- name: audit/call.one_result
-- Messages with tool calls that are not followed directly by one message per call, in order and in
-- the same send, or whose calls are not settled; and answers to calls that nobody made. The last
-- message of a send that runs or waits may have open calls. Copied messages, of epoch 0, have no
-- calls of their own, and those of old sends went with them.
-- What a deleted session left behind goes in no order that anybody may rely on.
WITH asked AS (
    SELECT m.tenant, m.session_id, m.send_id, m.seq, m.epoch, c.call_id,
           m.seq + c.place AS due,
           EXISTS (SELECT 1 FROM sends s
                   WHERE s.tenant = m.tenant AND s.send_id = m.send_id
                     AND s.session_id = m.session_id AND s.status IN ('running', 'waiting'))
           AND NOT EXISTS (SELECT 1 FROM messages n
                           WHERE n.tenant = m.tenant AND n.session_id = m.session_id
                             AND n.seq > m.seq) AS may_be_open,
           EXISTS (SELECT 1 FROM sends s
                   WHERE s.tenant = m.tenant AND s.send_id = m.send_id) AS kept
    FROM messages m, JSON_TABLE(m.tool_calls, '$[*]' COLUMNS (
        place FOR ORDINALITY, call_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.id'
    )) c
    WHERE m.tool_calls IS NOT NULL
      AND EXISTS (SELECT 1 FROM sessions c
                  WHERE c.tenant = m.tenant AND c.session_id = m.session_id)
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'call', call_id, 'seq', seq)
FROM (
    SELECT a.tenant, a.session_id, a.seq, a.call_id
    FROM asked a
    LEFT JOIN messages r ON r.tenant = a.tenant AND r.session_id = a.session_id AND r.seq = a.due
    LEFT JOIN tool_calls t ON t.tenant = a.tenant AND t.call_id = a.call_id COLLATE utf8mb4_bin
                          AND t.session_id = a.session_id
    WHERE NOT a.may_be_open
      AND (NOT r.tool_call_id <=> a.call_id COLLATE utf8mb4_bin OR NOT r.send_id <=> a.send_id
           OR CASE WHEN t.call_id IS NULL THEN a.epoch > 0 AND a.kept ELSE t.result IS NULL END)
    UNION ALL
    SELECT r.tenant, r.session_id, r.seq, r.tool_call_id
    FROM messages r
    WHERE r.tool_call_id IS NOT NULL
      AND EXISTS (SELECT 1 FROM sessions c
                  WHERE c.tenant = r.tenant AND c.session_id = r.session_id)
      AND NOT EXISTS (SELECT 1 FROM asked a
                      WHERE a.tenant = r.tenant AND a.session_id = r.session_id
                        AND a.due = r.seq AND a.call_id = r.tool_call_id COLLATE utf8mb4_bin)
) found
ORDER BY tenant, session_id, seq, call_id
LIMIT $1;

-- name: audit/call.settled_shape
-- Calls with a result but no time of it, or the other way round; that wait although they are
-- settled; that were begun without a grant, or have one and were not begun.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'call', call_id)
FROM tool_calls
WHERE (settled_at IS NULL) <> (result IS NULL)
   OR (settled_at IS NOT NULL AND waits_on IS NOT NULL)
   OR (started_epoch IS NULL) <> (attempt = 0)
ORDER BY tenant, session_id, call_id
LIMIT $1;

-- name: audit/epoch.granted
-- Messages, steps and begun calls under an epoch that their session never had; and steps with which a
-- send goes on under another epoch, though they do not say so.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), kind, number, 'epoch', epoch)
FROM (
    SELECT w.tenant, w.session_id, w.kind, w.number, w.epoch
    FROM (
        SELECT tenant, session_id, 'seq' AS kind, seq AS number, epoch FROM messages
        UNION ALL
        SELECT tenant, session_id, 'step', n, epoch FROM steps
    ) w
    LEFT JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
    WHERE w.epoch < 0 OR w.epoch > coalesce(h.epoch, -1)
    UNION ALL
    SELECT c.tenant, c.session_id, 'call', c.call_id, c.started_epoch
    FROM tool_calls c
    LEFT JOIN session_hot h ON h.tenant = c.tenant AND h.session_id = c.session_id
    WHERE c.started_epoch < 1 OR c.started_epoch > coalesce(h.epoch, -1)
    UNION ALL
    SELECT tenant, session_id, 'step', n, epoch
    FROM (
        SELECT tenant, session_id, n, kind, epoch,
               lag(epoch) OVER (PARTITION BY tenant, session_id, send_id ORDER BY n) AS earlier
        FROM steps
        WHERE epoch > 0
    ) found
    WHERE epoch > earlier AND kind NOT IN ('resumed', 'finished')
) found
ORDER BY tenant, session_id, kind, number
LIMIT $1;

-- name: audit/epoch.never_decreases
-- Messages and steps under an older grant than one earlier them. Epoch 0 is no grant.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), kind, number,
                   'epoch', epoch, 'before', earlier)
FROM (
    SELECT tenant, session_id, 'seq' AS kind, seq AS number, epoch,
           lag(epoch) OVER (PARTITION BY tenant, session_id ORDER BY seq) AS earlier
    FROM messages WHERE epoch <> 0
    UNION ALL
    SELECT tenant, session_id, 'step', n, epoch,
           lag(epoch) OVER (PARTITION BY tenant, session_id ORDER BY n)
    FROM steps WHERE epoch <> 0
) found
WHERE epoch < earlier
ORDER BY tenant, session_id, kind, number
LIMIT $1;

-- name: audit/epoch.one_boot
-- Grants whose steps come from several boots; those of the present one come from the owner.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'epoch', epoch, 'boots', count(DISTINCT boot))
FROM (
    SELECT tenant, session_id, epoch, boot FROM steps WHERE epoch > 0
    UNION ALL
    SELECT tenant, session_id, epoch, owner_boot FROM session_hot WHERE owner_boot IS NOT NULL
) found
GROUP BY tenant, session_id, epoch
HAVING count(DISTINCT boot) > 1
ORDER BY tenant, session_id, epoch
LIMIT $1;

-- name: audit/inbox.one_fate
-- Items with a fate but no time of it, or the other way round; that were delivered to a send under
-- way and name no message that there is, unless it was pruned; and others that name one.
SELECT json_object('session', 'ses_' || lower(hex(i.session_id)), 'item', i.item_id, 'fate', i.fate)
FROM inbox i
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
WHERE h.lifecycle <> 2
  AND ((i.settled_at IS NULL) <> (i.fate = 'pending')
       OR (i.seq IS NOT NULL) <> (i.fate = 'delivered' AND i.mode <> 'coalesce')
       OR (i.seq >= (SELECT c.first_seq FROM sessions c
                     WHERE c.tenant = i.tenant AND c.session_id = i.session_id)
           AND NOT EXISTS (SELECT 1 FROM messages m
                           WHERE m.tenant = i.tenant AND m.session_id = i.session_id
                             AND m.seq = i.seq)))
ORDER BY i.tenant, i.session_id, i.n
LIMIT $1;

-- name: audit/message.has_step
-- Messages that no step of their send and epoch wrote; and steps that wrote messages which are not
-- there, though they were not pruned. Copied messages, of epoch 0, have no step; those of old sends
-- lost theirs. What wrote a message is the last step that begins at or before it.
WITH written AS (
    SELECT tenant, session_id, send_id, epoch, n, CAST(JSON_VALUE(refs, '$.first_seq') AS SIGNED) AS first,
           CAST(JSON_VALUE(refs, '$.first_seq') AS SIGNED) + CAST(JSON_VALUE(refs, '$.messages') AS SIGNED) AS end_seq
    FROM steps
    WHERE JSON_VALUE(refs, '$.first_seq') IS NOT NULL
), placed AS (
    SELECT tenant, session_id, seq, send_id, epoch,
           max(n) OVER (PARTITION BY tenant, session_id ORDER BY seq, send_id IS NOT NULL) AS n
    FROM (
        SELECT tenant, session_id, seq, send_id, epoch, NULL AS n FROM messages
        UNION ALL
        SELECT tenant, session_id, first, NULL, NULL, n FROM written
    ) found
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), 'seq', seq, 'step', n)
FROM (
    SELECT m.tenant, m.session_id, m.send_id, m.seq, NULL AS n
    FROM placed m
    JOIN sends s ON s.tenant = m.tenant AND s.send_id = m.send_id AND s.session_id = m.session_id
    LEFT JOIN written w ON w.n = m.n AND w.session_id = m.session_id AND w.tenant = m.tenant
                       AND w.send_id = m.send_id AND w.epoch = m.epoch AND m.seq < w.end_seq
    WHERE m.epoch > 0 AND w.n IS NULL
    UNION ALL
    SELECT w.tenant, w.session_id, w.send_id, w.first, w.n
    FROM written w
    JOIN sessions c ON c.tenant = w.tenant AND c.session_id = w.session_id
    WHERE (SELECT count(*) FROM messages m
           WHERE m.tenant = w.tenant AND m.session_id = w.session_id
             AND m.seq >= GREATEST(w.first, c.first_seq) AND m.seq < w.end_seq)
          < w.end_seq - GREATEST(w.first, c.first_seq)
) found
ORDER BY tenant, session_id, seq
LIMIT $1;

-- name: audit/run.final_is_quiet
-- Final runs with a send under way, an open node, something counted as live, or an alarm. One that could
-- not be advanced left its nodes as they were, and asked its sends to end.
WITH final AS (
    SELECT tenant, run_id, status, alarm_at, JSON_VALUE(counts, '$.live') AS live,
           coalesce(JSON_VALUE(error, '$.code') = 'internal', 0) AS broken
    FROM runs
    WHERE finished_at IS NOT NULL
)
SELECT found FROM (
    SELECT f.tenant, f.run_id,
           json_object('run', 'run_' || lower(hex(f.run_id)), 'status', f.status,
                       'live', count(*)) AS found
    FROM sends s
    JOIN final f ON f.run_id = s.run_id AND f.tenant = s.tenant
    WHERE s.run_id IS NOT NULL AND s.finished_at IS NULL
      AND NOT (f.broken AND s.cancel_requested)
    GROUP BY f.tenant, f.run_id, f.status
    UNION ALL
    SELECT f.tenant, f.run_id,
           json_object('run', 'run_' || lower(hex(f.run_id)), 'status', f.status,
                       'nodes', count(*))
    FROM run_nodes n
    JOIN final f ON f.run_id = n.run_id AND f.tenant = n.tenant
    WHERE n.state IN ('queued', 'running', 'waiting') AND NOT f.broken
    GROUP BY f.tenant, f.run_id, f.status
    UNION ALL
    SELECT tenant, run_id,
           json_object('run', 'run_' || lower(hex(run_id)), 'status', status,
                       'alarm_at', alarm_at, 'live', live)
    FROM final
    WHERE alarm_at IS NOT NULL OR live > 0
) violations
ORDER BY tenant, run_id
LIMIT $1;

-- name: audit/run.steps_gap_free
-- Runs whose advances are not numbered from 1 without gaps up to their step.
SELECT json_object('run', 'run_' || lower(hex(r.run_id)), 'steps', count(t.n), 'step', r.step)
FROM runs r
LEFT JOIN run_steps t ON t.tenant = r.tenant AND t.run_id = r.run_id
GROUP BY r.tenant, r.run_id, r.step
HAVING count(t.n) <> r.step OR coalesce(min(t.n), 1) <> 1 OR coalesce(max(t.n), 0) <> r.step
ORDER BY r.tenant, r.run_id
LIMIT $1;

-- name: audit/send.final_is_last
-- Steps of a send behind its final one, but for folds of its session at rest, and messages that
-- neither it nor an earlier step of the send wrote. Copied messages, of epoch 0, have no step. What wrote a message is the last step that
-- begins at or before it.
WITH final_steps AS (
    SELECT tenant, session_id, send_id, min(n) AS n
    FROM steps WHERE kind = 'finished'
    GROUP BY tenant, session_id, send_id
), written AS (
    SELECT tenant, session_id, send_id, n, CAST(JSON_VALUE(refs, '$.first_seq') AS SIGNED) AS first,
           CAST(JSON_VALUE(refs, '$.first_seq') AS SIGNED) + CAST(JSON_VALUE(refs, '$.messages') AS SIGNED) AS end_seq
    FROM steps
    WHERE JSON_VALUE(refs, '$.first_seq') IS NOT NULL
), placed AS (
    SELECT tenant, session_id, seq, send_id, epoch,
           max(n) OVER (PARTITION BY tenant, session_id ORDER BY seq, send_id IS NOT NULL) AS n
    FROM (
        SELECT tenant, session_id, seq, send_id, epoch, NULL AS n FROM messages
        UNION ALL
        SELECT tenant, session_id, first, NULL, NULL, n FROM written
    ) found
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), kind, number)
FROM (
    SELECT s.tenant, s.session_id, s.send_id, 'step' AS kind, s.n AS number
    FROM steps s
    JOIN final_steps f ON f.tenant = s.tenant AND f.session_id = s.session_id
                      AND f.send_id = s.send_id AND s.n > f.n
    WHERE s.kind <> 'folded'
    UNION ALL
    SELECT m.tenant, m.session_id, m.send_id, 'seq', m.seq
    FROM placed m
    JOIN final_steps f ON f.tenant = m.tenant AND f.session_id = m.session_id AND f.send_id = m.send_id
    LEFT JOIN written w ON w.n = m.n AND w.session_id = m.session_id AND w.tenant = m.tenant
                       AND w.send_id = m.send_id AND m.seq < w.end_seq AND w.n <= f.n
    WHERE m.epoch > 0 AND w.n IS NULL
) found
ORDER BY tenant, session_id, number
LIMIT $1;

-- name: audit/send.one_final_step
-- Sends whose number of final steps is not the one that their status asks for.
WITH final_steps AS (
    SELECT tenant, session_id, send_id, count(*) AS steps
    FROM steps WHERE kind = 'finished'
    GROUP BY tenant, session_id, send_id
)
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)),
                   'status', s.status, 'final_steps', coalesce(f.steps, 0))
FROM sends s
LEFT JOIN final_steps f ON f.tenant = s.tenant AND f.session_id = s.session_id AND f.send_id = s.send_id
WHERE coalesce(f.steps, 0) <> (s.finished_at IS NOT NULL)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;

-- name: audit/send.rounds_in_order
-- Sends whose steps do not close their rounds from the first on, each once, as many as they count.
WITH closed AS (
    SELECT tenant, session_id, send_id, JSON_VALUE(refs, '$.round.index') AS number,
           row_number() OVER (PARTITION BY tenant, session_id, send_id ORDER BY n) - 1 AS place
    FROM steps
    WHERE JSON_VALUE(refs, '$.round.index') IS NOT NULL
), counted AS (
    SELECT tenant, session_id, send_id, count(*) AS rounds, min(number = place) AS ordered
    FROM closed
    GROUP BY tenant, session_id, send_id
)
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)), 'rounds', s.rounds,
                   'closed', coalesce(c.rounds, 0))
FROM sends s
LEFT JOIN counted c ON c.send_id = s.send_id AND c.session_id = s.session_id
                   AND c.tenant = s.tenant
WHERE s.rounds <> coalesce(c.rounds, 0) OR NOT coalesce(c.ordered, 1)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;

-- name: audit/send.running_has_lease
-- Running sends in nobody's hands: their owner ended before $2, or is not known; or they were given
-- back, and a worker of their pool had nothing to do for longer than the bound. One under which workers
-- died waits for a worker that has no other such send.
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)),
                   'owner', 'bot_' || lower(hex(h.owner_boot)), 'ready_since', h.ready_since)
FROM sends s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
LEFT JOIN boots b ON b.boot_id = h.owner_boot
WHERE s.finished_at IS NULL AND s.status = 'running'
  AND CASE
      WHEN h.owner_boot IS NOT NULL
          THEN coalesce(LEAST(coalesce(b.dead_at, b.lease_until), b.lease_until) < $2, 1)
      WHEN h.ready_since IS NULL THEN 1
      ELSE s.crashes = 0
          AND EXISTS (SELECT 1 FROM boots w
                      WHERE w.role = 'worker' AND w.concurrency > 0 AND w.pool = h.pool
                        AND w.dead_at IS NULL AND w.in_flight = 0
                        AND $4 BETWEEN w.lease_until - w.lease_ms AND w.lease_until
                        AND GREATEST(h.ready_since, w.started_at,
                                coalesce((SELECT max(t.at) FROM steps t
                                          WHERE t.tenant = s.tenant
                                            AND t.session_id = s.session_id), 0))
                            < w.lease_until - w.lease_ms - ($4 - $2))
  END
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;

-- name: audit/send.shape
-- Sends whose fields do not fit their status. The table's checks refuse some of these as well; a
-- file that was changed by other means may still hold them.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), 'status', status)
FROM sends
WHERE (finished_at IS NOT NULL) <> (status IN ('completed', 'failed', 'cancelled'))
   OR (stop_reason IS NOT NULL) <> (status IN ('completed', 'failed', 'cancelled'))
   OR (waiting_on IS NOT NULL) <> (status = 'waiting')
   OR (error IS NOT NULL) <> (status = 'failed')
   OR (finished_at IS NOT NULL AND alarm_at IS NOT NULL)
   OR (status = 'queued' AND started_at IS NOT NULL)
   OR (status = 'queued' AND position IS NULL AND alarm_at IS NULL)
   OR (status IN ('running', 'waiting', 'completed')
       AND (started_at IS NULL OR agent_version IS NULL OR position IS NULL))
ORDER BY tenant, session_id, send_id
LIMIT $1;

-- name: audit/session.erased
-- Deleted sessions that are not to be looked at again and have left something behind, or below which a
-- session is alive.
WITH erased AS (
    SELECT h.tenant, h.session_id
    FROM session_hot h
    WHERE h.lifecycle = 2
      AND NOT EXISTS (SELECT 1 FROM erasures e
                      WHERE e.tenant = h.tenant AND e.session_id = h.session_id)
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'has', has, 'rows', count(*))
FROM (
    SELECT o.tenant, o.session_id, 'messages' AS has
    FROM erased o JOIN messages x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'tool_calls' AS has
    FROM erased o JOIN tool_calls x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'usage_rows' AS has
    FROM erased o JOIN usage_rows x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'inbox' AS has
    FROM erased o JOIN inbox x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'agents' AS has
    FROM erased o JOIN agents x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'folds' AS has
    FROM erased o JOIN folds x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'projections' AS has
    FROM erased o JOIN projections x ON x.tenant = o.tenant AND x.session_id = o.session_id
    UNION ALL
    SELECT o.tenant, o.session_id, 'children'
    FROM erased o JOIN sessions x ON x.tenant = o.tenant AND x.parent_session = o.session_id
) found
GROUP BY tenant, session_id, has
ORDER BY tenant, session_id, has
LIMIT $1;

-- name: audit/session.one_active_send
-- Sessions with several sends that run or wait.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'running', sum(status = 'running'), 'waiting', sum(status = 'waiting'))
FROM sends
WHERE finished_at IS NULL AND status IN ('running', 'waiting')
GROUP BY tenant, session_id
HAVING count(*) > 1
ORDER BY tenant, session_id
LIMIT $1;

-- name: audit/session.pending_matches
-- Hot rows whose pending is not the number of queued sends with a place.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)),
                   'pending', h.pending, 'queued', count(s.send_id))
FROM session_hot h
LEFT JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id
                 AND s.finished_at IS NULL AND s.status = 'queued' AND s.position IS NOT NULL
GROUP BY h.tenant, h.session_id, h.pending
HAVING count(s.send_id) <> h.pending
ORDER BY h.tenant, h.session_id
LIMIT $1;

-- name: audit/session.positions_unique
-- Places that several sends or inbox items of a session have, or that were never drawn.
SELECT json_object('session', 'ses_' || lower(hex(p.session_id)),
                   'position', p.position, 'times', count(*))
FROM (
    SELECT tenant, session_id, position FROM sends WHERE position IS NOT NULL
    UNION ALL
    SELECT tenant, session_id, n FROM inbox
) p
LEFT JOIN session_hot h ON h.tenant = p.tenant AND h.session_id = p.session_id
GROUP BY p.tenant, p.session_id, p.position
HAVING count(*) > 1 OR p.position < 1 OR p.position >= coalesce(max(h.next_position), 1)
ORDER BY p.tenant, p.session_id, p.position
LIMIT $1;

-- name: audit/session.ready_iff_work
-- Sessions without an owner that are ready without work, or have work and are not. While a send
-- waits, the session may be ready or not: what it waits for may have come.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)), 'ready_since', h.ready_since,
                   'running', coalesce(sum(s.status = 'running'), 0),
                   'queued', coalesce(sum(s.status = 'queued'), 0))
FROM session_hot h
LEFT JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id
                 AND s.finished_at IS NULL AND s.position IS NOT NULL
WHERE h.owner_boot IS NULL
GROUP BY h.tenant, h.session_id, h.ready_since
HAVING coalesce(sum(s.status = 'waiting'), 0) = 0
   AND (h.ready_since IS NOT NULL) <> (count(s.send_id) > 0)
ORDER BY h.tenant, h.session_id
LIMIT $1;

-- name: audit/session.seq_gap_free
-- Transcripts that are not numbered from their first_seq to before next_seq. A deleted one is gone.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)),
                   'messages', count(m.seq), 'first_seq', coalesce(c.first_seq, 1),
                   'next_seq', h.next_seq)
FROM session_hot h
LEFT JOIN sessions c ON c.tenant = h.tenant AND c.session_id = h.session_id
LEFT JOIN messages m ON m.tenant = h.tenant AND m.session_id = h.session_id
WHERE h.lifecycle <> 2
GROUP BY h.tenant, h.session_id, c.first_seq, h.next_seq
HAVING count(m.seq) <> h.next_seq - coalesce(c.first_seq, 1)
    OR coalesce(min(m.seq), coalesce(c.first_seq, 1)) <> coalesce(c.first_seq, 1)
    OR coalesce(max(m.seq), h.next_seq - 1) <> h.next_seq - 1
ORDER BY h.tenant, h.session_id
LIMIT $1;

-- name: audit/session.steps_gap_free
-- Sessions whose steps are not numbered from 1 to before next_step, but for those that went with
-- their sends.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)),
                   'steps', count(s.n), 'next_step', h.next_step)
FROM session_hot h
LEFT JOIN steps s ON s.tenant = h.tenant AND s.session_id = h.session_id
LEFT JOIN retired_steps r ON r.tenant = h.tenant AND r.session_id = h.session_id
GROUP BY h.tenant, h.session_id, h.next_step
HAVING count(s.n) + coalesce(max(r.steps), 0) <> h.next_step - 1
    OR coalesce(min(s.n), 1) < 1
    OR coalesce(max(s.n), 0) > h.next_step - 1
ORDER BY h.tenant, h.session_id
LIMIT $1;

-- name: audit/tenant.own_rows
-- Sessions, sends and runs that rows of one tenant name and only another tenant has.
WITH named AS (
    SELECT tenant, 'session' AS what, session_id AS id FROM sends
    UNION SELECT tenant, 'session', session_id FROM messages
    UNION SELECT tenant, 'session', session_id FROM steps
    UNION SELECT tenant, 'session', session_id FROM tool_calls
    UNION SELECT tenant, 'session', session_id FROM inbox
    UNION SELECT tenant, 'session', session_id FROM agents
    UNION SELECT tenant, 'session', session_id FROM usage_rows
    UNION SELECT tenant, 'session', session_id FROM folds
    UNION SELECT tenant, 'session', session_id FROM projections
    UNION SELECT tenant, 'session', session_id FROM extractions
    UNION SELECT tenant, 'session', unhex(substr(JSON_VALUE(source, '$.session_id'), 5)) FROM memories
    UNION SELECT tenant, 'session', parent_session FROM sessions
    UNION SELECT tenant, 'session', root_session FROM sessions
    UNION SELECT tenant, 'session', session_id FROM runs
    UNION SELECT tenant, 'session', session_id FROM timers
    UNION SELECT tenant, 'send', send_id FROM messages WHERE epoch > 0
    UNION SELECT tenant, 'send', send_id FROM steps
    UNION SELECT tenant, 'send', send_id FROM tool_calls
    UNION SELECT tenant, 'send', send_id FROM inbox
    UNION SELECT tenant, 'send', send_id FROM usage_rows
    UNION SELECT tenant, 'send', send_id FROM extractions
    UNION SELECT tenant, 'send', unhex(substr(JSON_VALUE(source, '$.send_id'), 5)) FROM memories
    UNION SELECT tenant, 'run', run_id FROM sends
), has AS (
    SELECT tenant, 'session' AS what, session_id AS id FROM session_hot
    UNION ALL SELECT tenant, 'send', send_id FROM sends
    UNION ALL SELECT tenant, 'run', run_id FROM runs
), missing AS (
    SELECT n.tenant, n.what, n.id
    FROM named n
    LEFT JOIN has h ON h.id = n.id AND h.what = n.what AND h.tenant = n.tenant
    WHERE h.id IS NULL AND n.id IS NOT NULL
)
SELECT json_object('tenant', m.tenant, m.what, lower(hex(m.id)), 'of', min(o.tenant))
FROM missing m
JOIN has o ON o.id = m.id AND o.what = m.what
GROUP BY m.tenant, m.what, m.id
ORDER BY m.tenant, m.what, m.id
LIMIT $1;

-- name: audit/timer.fired_once
-- Timers whose occurrences have a gap or do not reach their count, and occurrences with another's
-- send, with a send that is not theirs to have, or without one that is. The oldest may be gone.
SELECT json_object('timer', 'tmr_' || lower(hex(x.timer_id)), 'n', x.n)
FROM (
    SELECT t.tenant, t.timer_id, t.next_n AS n
    FROM timers t
    JOIN timer_occurrences o ON o.tenant = t.tenant AND o.timer_id = t.timer_id
    GROUP BY t.tenant, t.timer_id, t.next_n
    HAVING max(o.n) <> t.next_n - 1 OR max(o.n) - min(o.n) + 1 <> count(*)
    UNION ALL
    SELECT o.tenant, o.timer_id, o.n
    FROM timer_occurrences o
    WHERE (o.send_id IS NOT NULL) <> (o.fate IN ('fired', 'merged'))
    UNION ALL
    SELECT o.tenant, min(o.timer_id), min(o.n)
    FROM timer_occurrences o
    WHERE o.fate = 'fired' AND o.send_id IS NOT NULL
    GROUP BY o.tenant, o.send_id
    HAVING count(*) > 1
) x
ORDER BY x.tenant, x.timer_id, x.n
LIMIT $1;

-- name: audit/timer.shape
-- Timers whose times do not fit their status.
SELECT json_object('timer', 'tmr_' || lower(hex(t.timer_id)), 'status', t.status)
FROM timers t
WHERE (t.fire_at IS NOT NULL) <> (t.status = 'armed')
   OR (t.due_at IS NULL) <> (t.status IN ('done', 'cancelled', 'dead'))
   OR (t.ended_at IS NOT NULL) <> (t.status IN ('done', 'cancelled', 'dead'))
ORDER BY t.tenant, t.timer_id
LIMIT $1;

-- name: audit/usage.matches_rounds
-- Assistant messages whose round nobody paid for; and usage rows of no send, or of a round that their
-- send did not get to. Copied messages, of epoch 0, were paid elsewhere; what old ones used went with
-- their sends.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), 'round', round, 'seq', seq)
FROM (
    SELECT m.tenant, m.session_id, m.send_id, m.round, m.seq
    FROM messages m
    WHERE m.role = 'assistant' AND m.epoch > 0
      AND NOT EXISTS (SELECT 1 FROM usage_rows u
                      WHERE u.tenant = m.tenant AND u.send_id = m.send_id AND u.round = m.round)
      AND EXISTS (SELECT 1 FROM sessions c
                  WHERE c.tenant = m.tenant AND c.session_id = m.session_id)
      AND EXISTS (SELECT 1 FROM sends s WHERE s.tenant = m.tenant AND s.send_id = m.send_id)
    UNION ALL
    SELECT u.tenant, u.session_id, u.send_id, u.round, NULL
    FROM usage_rows u
    LEFT JOIN sends s ON s.tenant = u.tenant AND s.send_id = u.send_id
                     AND s.session_id = u.session_id
    WHERE s.send_id IS NULL OR u.round > s.rounds
) found
ORDER BY tenant, session_id, send_id, round
LIMIT $1;

-- name: audit/usage.sums
-- Sends whose sum is not what their usage rows say, and what their children and runs used. A sum that
-- holds an estimate may be more: calls that nobody heard the end of have no row. Calls that were
-- pruned cannot say whether they made a child.
WITH paid AS (
    SELECT tenant, send_id, CAST(sum(JSON_VALUE("usage", '$.input_tokens')) AS SIGNED) AS input,
           CAST(sum(JSON_VALUE("usage", '$.output_tokens')) AS SIGNED) AS output
    FROM usage_rows
    WHERE round <> -1
    GROUP BY tenant, send_id
), makers AS (
    SELECT DISTINCT tenant, send_id FROM tool_calls
    WHERE name IN ('spawn_agent', 'create_workflow')
), told AS (
    SELECT DISTINCT tenant, session_id FROM inbox
    WHERE kind = 'child' OR item_id LIKE 'run:%'
), sums AS (
    SELECT s.tenant, s.session_id, s.send_id,
           coalesce(p.input, 0) AS paid_input, coalesce(p.output, 0) AS paid_output,
           coalesce(JSON_VALUE(s."usage", '$.input_tokens'), 0) AS input,
           coalesce(JSON_VALUE(s."usage", '$.output_tokens'), 0) AS output,
           coalesce(JSON_VALUE(s."usage", '$.estimated') IN ('1', 'true'), 0) OR c.first_seq > 1 OR m.send_id IS NOT NULL
               OR t.session_id IS NOT NULL OR JSON_VALUE(s.options, '$.ended_run') IS NOT NULL AS may_be_more
    FROM sends s
    JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
    LEFT JOIN paid p ON p.send_id = s.send_id AND p.tenant = s.tenant
    LEFT JOIN makers m ON m.send_id = s.send_id AND m.tenant = s.tenant
    LEFT JOIN told t ON t.session_id = s.session_id AND t.tenant = s.tenant
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)),
                   'rows', json_array(paid_input, paid_output), 'used', json_array(input, output))
FROM sums
WHERE input < paid_input OR output < paid_output
   OR (input > paid_input OR output > paid_output) AND NOT may_be_more
ORDER BY tenant, session_id, send_id
LIMIT $1;

-- name: audit/fold.in_order
-- Folds that stand for a message of another one of their level, or of another one that is shown; and
-- folds that end between a call and its results.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'fold', n, 'with', other)
FROM (
    SELECT f.tenant, f.session_id, f.n, o.n AS other
    FROM folds f
    JOIN folds o ON o.tenant = f.tenant AND o.session_id = f.session_id AND o.n > f.n
                AND o.from_seq <= f.to_seq AND o.to_seq >= f.from_seq
                AND (o.level = f.level OR f.covered_by IS NULL AND o.covered_by IS NULL)
    UNION ALL
    SELECT f.tenant, f.session_id, f.n, NULL
    FROM folds f
    JOIN messages m ON m.tenant = f.tenant AND m.session_id = f.session_id AND m.seq = f.to_seq + 1
                   AND m.asked_at_seq <= f.to_seq
) found
ORDER BY tenant, session_id, n
LIMIT $1;

-- name: audit/skill.complete
-- Listed skills whose version is not there, and files that a version lists and does not have, or has and
-- does not list.
-- MySQL takes no MATERIALIZED, and has JSON_TABLE for json_each.
WITH listed AS (
    SELECT v.tenant, v.name, v.hash, j.path AS path, j.bytes AS bytes
    FROM skill_versions v, JSON_TABLE(v.body, '$.files[*]' COLUMNS (
        path VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.path',
        bytes BIGINT PATH '$.bytes'
    )) j
), kept AS (
    SELECT f.tenant, f.name, f.hash, f.path, length(f.content) AS bytes FROM skill_files f
)
SELECT json_object('tenant', x.tenant, 'skill', x.name, 'hash', x.hash, x.what, x.part)
FROM (
    SELECT s.tenant, s.name, s.hash, 'version' AS what, s.hash AS part
    FROM skills s
    LEFT JOIN skill_versions v ON v.tenant = s.tenant AND v.name = s.name AND v.hash = s.hash
    WHERE s.listed = 1 AND v.hash IS NULL
    UNION ALL
    SELECT l.tenant, l.name, l.hash, 'file', l.path
    FROM listed l
    LEFT JOIN kept k ON k.tenant = l.tenant AND k.name = l.name AND k.hash = l.hash AND k.path = l.path
    WHERE k.path IS NULL OR k.bytes <> l.bytes
    UNION ALL
    SELECT k.tenant, k.name, k.hash, 'file', k.path
    FROM kept k
    LEFT JOIN listed l ON l.tenant = k.tenant AND l.name = k.name AND l.hash = k.hash AND l.path = k.path
    WHERE l.path IS NULL
) x
ORDER BY x.tenant, x.name, x.hash, x.part
LIMIT $1;

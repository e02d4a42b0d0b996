-- MySQL's own audit queries: those over the members of JSON documents.

-- name: audit/budget.kept
-- Sends that took more rounds, used more before their last answer, or reserved more than their
-- budget allows; and completed sends that still reserve something for a child that reported to
-- them, unless others still work below that child. Sends that a hook allowed to exceed their budget
-- are left out.
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
-- Calls that no message of their send asks for.
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
-- calls of their own, and the calls of old sends were removed with them.
-- Rows of deleted sessions are not checked: they are removed in no particular order.
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

-- name: audit/skill.complete
-- Listed skills whose version is missing, files that a version lists but does not have, and files
-- that it has but does not list.
-- MySQL has no MATERIALIZED, and JSON_TABLE instead of json_each.
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

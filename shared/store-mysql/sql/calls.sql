-- MySQL's own statements for tool calls: rows are passed as one JSON array.

-- name: calls/insert
-- Stores the calls of a message.
INSERT INTO tool_calls (tenant, session_id, call_id, send_id, round, place, name, arguments, "repeat",
                        waits_on, approval, started_epoch, attempt, deadline_at, result,
                        requested_at, settled_at)
SELECT $1, $2, e.call_id, $3, e.round, e.place, e.name, e.arguments, e.repeats, e.waits_on, e.approval,
       e.started_epoch, e.started_epoch IS NOT NULL, e.deadline_at, e.result, $5,
       CASE WHEN e.result IS NOT NULL THEN $5 END
FROM JSON_TABLE($4, '$[*]' COLUMNS (
    call_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.call_id', round INT PATH '$.round', place INT PATH '$.place',
    name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.name', arguments LONGTEXT CHARACTER SET utf8mb4 PATH '$.arguments',
    repeats VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.repeat', waits_on VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.waits_on',
    approval VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.approval', started_epoch BIGINT PATH '$.started_epoch',
    deadline_at BIGINT PATH '$.deadline_at', result LONGTEXT CHARACTER SET utf8mb4 PATH '$.result'
)) e;

-- name: calls/change
-- Stores what became of calls; one that has a result keeps it.
UPDATE tool_calls c
JOIN JSON_TABLE($3, '$[*]' COLUMNS (
    call_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.call_id', waits_on VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.waits_on',
    started_epoch BIGINT PATH '$.started_epoch', deadline_at BIGINT PATH '$.deadline_at',
    asked LONGTEXT CHARACTER SET utf8mb4 PATH '$.asked', result LONGTEXT CHARACTER SET utf8mb4 PATH '$.result'
)) e ON c.call_id = e.call_id COLLATE utf8mb4_bin
SET c.waits_on = e.waits_on,
    c.deadline_at = CASE WHEN e.waits_on IS NULL THEN c.deadline_at ELSE e.deadline_at END,
    c.attempt = c.attempt + (e.started_epoch IS NOT NULL),
    c.started_epoch = coalesce(e.started_epoch, c.started_epoch),
    c.asked = coalesce(e.asked, c.asked),
    c.result = e.result,
    c.settled_at = CASE WHEN e.result IS NOT NULL THEN $4 END
WHERE c.tenant = $1 AND c.session_id = $2 AND c.result IS NULL;

-- name: calls/waiting
-- A page of the calls that wait for a person or a client, by the index of those.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND asked_since >= $3
  AND (asked_since > $3 OR call_id > $4)
  AND ($2 IS NULL OR waits_on = $2)
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id)
ORDER BY asked_since, call_id
LIMIT $5;

-- name: calls/held
-- Calls that were claimed with a token, by the index of those.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND held_with = $2
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id)
ORDER BY requested_at, call_id
LIMIT $3;

-- name: calls/claimable
-- Calls that nobody has, by the index of those that wait.
SELECT tenant, session_id, {call}
FROM tool_calls
WHERE tenant = $1 AND claimable = $2 AND approval <> 'asked'
  AND requested_at >= $5 AND (requested_at > $5 OR call_id > $6)
  AND (claimed_until IS NULL OR (claimed_until <= $3 AND "repeat" <> 'once'))
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = $1 AND s.session_id = tool_calls.session_id)
ORDER BY requested_at, call_id
LIMIT $4;

-- name: calls/lapsed
-- Calls whose claim has lapsed, by the index of those.
SELECT tenant, session_id, call_id
FROM tool_calls
WHERE once_until <= $1
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.tenant = tool_calls.tenant AND s.session_id = tool_calls.session_id)
ORDER BY once_until, tenant, session_id, call_id
LIMIT $2;

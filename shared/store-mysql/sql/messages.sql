-- MySQL's own statements for transcripts: rows are passed as one JSON array.

-- name: messages/insert
-- Stores the messages of a step.
INSERT INTO messages (tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id,
                      name, failed, round, asked_at_seq, epoch, created_at)
SELECT $1, $2, e.seq, $18, e.role, e.content, e.tool_calls, e.tool_call_id, e.name, e.failed, e.round,
       e.asked_at_seq, $20, $22
FROM JSON_TABLE($39, '$[*]' COLUMNS (
    seq BIGINT PATH '$.seq', role VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.role', content LONGTEXT CHARACTER SET utf8mb4 PATH '$.content',
    tool_calls LONGTEXT CHARACTER SET utf8mb4 PATH '$.tool_calls', tool_call_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.tool_call_id',
    name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.name', failed TINYINT PATH '$.failed', round INT PATH '$.round',
    asked_at_seq BIGINT PATH '$.asked_at_seq'
)) e;

-- name: messages/copy
-- Stores copied messages; a repeated page changes nothing.
INSERT INTO messages (tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id,
                      name, failed, round, asked_at_seq, epoch, created_at)
SELECT $1, $2, e.seq, unhex(e.send), e.role, e.content, e.tool_calls, e.tool_call_id, e.name, e.failed,
       e.round, e.asked_at_seq, 0, e.created_at
FROM JSON_TABLE($3, '$[*]' COLUMNS (
    seq BIGINT PATH '$.seq', send VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.send', role VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.role',
    content LONGTEXT CHARACTER SET utf8mb4 PATH '$.content', tool_calls LONGTEXT CHARACTER SET utf8mb4 PATH '$.tool_calls',
    tool_call_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.tool_call_id', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.name',
    failed TINYINT PATH '$.failed', round INT PATH '$.round',
    asked_at_seq BIGINT PATH '$.asked_at_seq', created_at BIGINT PATH '$.created_at'
)) e
ON DUPLICATE KEY UPDATE messages.seq = messages.seq;

-- name: messages/window
-- The messages of the window that begins at $3, or, if a tool's message is there, at the message
-- that asked, without those that the claimer has: from $4 up to, but not including, $5.
SELECT m.tenant, m.session_id, {m.message}
FROM (
    SELECT coalesce((SELECT a.asked_at_seq FROM messages a
                     WHERE a.tenant = $1 AND a.session_id = $2 AND a.seq = $3 AND a.role = 'tool'),
                    $3) AS first
) w
JOIN messages m ON m.tenant = $1 AND m.session_id = $2
     AND m.seq >= CASE WHEN $4 <= w.first AND $5 > w.first THEN $5 ELSE w.first END
ORDER BY m.seq;

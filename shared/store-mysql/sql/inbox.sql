-- MySQL's own statements for the inbox.

-- name: inbox/deliver
-- Stores which messages of send $3 items became; one that has a fate keeps it.
UPDATE inbox i
JOIN JSON_TABLE($4, '$[*]' COLUMNS (
    item_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.item_id', seq BIGINT PATH '$.seq'
)) e ON i.item_id = e.item_id COLLATE utf8mb4_bin
SET i.fate = 'delivered', i.seq = e.seq, i.settled_at = $5, i.send_id = coalesce(i.send_id, $3)
WHERE i.tenant = $1 AND i.session_id = $2 AND i.fate = 'pending';

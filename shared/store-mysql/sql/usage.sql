-- MySQL's own statements for usage.

-- name: usage/insert
-- Stores what model responses cost; a repeat replaces the first.
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, "usage", at,
                        purpose)
SELECT $1, $2, $18, e.round, e.attempt, e.model, e.used, $22,
       CASE e.round WHEN -2 THEN 'fold' WHEN -3 THEN 'embed' END
FROM JSON_TABLE($40, '$[*]' COLUMNS (
    round INT PATH '$.round', attempt INT PATH '$.attempt', model VARCHAR(700) CHARACTER SET utf8mb4 PATH '$.model',
    used LONGTEXT CHARACTER SET utf8mb4 PATH '$.usage'
)) e
ON DUPLICATE KEY UPDATE model = VALUES(model), "usage" = VALUES("usage");

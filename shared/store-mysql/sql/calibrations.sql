-- MySQL's own statements for calibrations.

-- name: calibrations/save
-- Merges what a worker learned into what is stored: a higher ratio applies at once, a lower one
-- moves the stored one halfway. Index: the primary key. Assignments run from left to right, and
-- none reads what another wrote.
INSERT INTO calibrations (provider, model, ratio, counts, updated_at)
SELECT e.of_provider, e.of_model, e.learned, e.heard, $2
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    of_provider VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.provider',
    of_model VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.model',
    learned BIGINT PATH '$.ratio', heard BIGINT PATH '$.counts'
)) e
ON DUPLICATE KEY UPDATE
    ratio = greatest(calibrations.ratio, VALUES(ratio))
        - greatest(calibrations.ratio - VALUES(ratio), 0) DIV 2,
    counts = greatest(calibrations.counts, VALUES(counts)),
    updated_at = VALUES(updated_at);

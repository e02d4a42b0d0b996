-- Attaches a fold: it covers the shown folds all of whose messages are in its range, and its number
-- becomes the context version. By folds_shown and session_hot's key.
UPDATE folds SET covered_by = $3
WHERE tenant = $1 AND session_id = $2 AND covered_by IS NULL AND from_seq >= $4 AND to_seq <= $5;
INSERT INTO folds (tenant, session_id, n, from_seq, to_seq, level, kind, text, model, tokens_before,
                   tokens_after, send_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
UPDATE session_hot SET context_version = $3 WHERE tenant = $1 AND session_id = $2;

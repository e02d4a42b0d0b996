-- Stores a fold of a copied session; its number becomes the context version.
INSERT INTO folds (tenant, session_id, n, from_seq, to_seq, level, kind, text, model, tokens_before,
                   tokens_after, send_id, created_at, covered_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);
UPDATE session_hot SET context_version = $3 WHERE tenant = $1 AND session_id = $2;

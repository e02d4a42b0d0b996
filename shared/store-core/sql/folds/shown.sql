-- The folds of a session that are shown, in order. By folds_shown.
SELECT tenant, session_id, n, from_seq, to_seq, level, kind, text, model, tokens_before, tokens_after,
       send_id, created_at, covered_by
FROM folds
WHERE tenant = $1 AND session_id = $2 AND covered_by IS NULL
ORDER BY from_seq;

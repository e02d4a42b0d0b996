-- Every fold, by session.
SELECT tenant, session_id, n, from_seq, to_seq, level, kind, text, model, tokens_before, tokens_after,
       send_id, created_at, covered_by
FROM folds
ORDER BY tenant, session_id, n;

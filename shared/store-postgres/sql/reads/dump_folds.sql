-- Reads every fold in order.
SELECT
    f.tenant, f.session_id, f.n, f.from_seq, f.to_seq, f.level, f.kind, f.text, f.model,
    f.tokens_before, f.tokens_after, f.send_id, f.created_at, f.covered_by
FROM folds f
ORDER BY f.tenant, f.session_id, f.n

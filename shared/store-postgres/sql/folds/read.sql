-- Reads all folds of a session.
-- Index: folds_pkey.
SELECT
    f.tenant, f.session_id, f.n, f.from_seq, f.to_seq, f.level, f.kind, f.text, f.model,
    f.tokens_before, f.tokens_after, f.send_id, f.created_at, f.covered_by
FROM folds f
WHERE f.tenant = $1::integer AND f.session_id = $2::uuid
  -- What a deleted session left behind is nobody's.
  AND EXISTS (
      SELECT FROM sessions s WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
  )
ORDER BY f.n

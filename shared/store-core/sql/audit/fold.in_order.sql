-- Folds that overlap another one of their level, or shown folds that overlap another shown one; and
-- folds that end between a call and its results.
SELECT json_object('session', 'ses_' || lower(hex(session_id)), 'fold', n, 'with', other)
FROM (
    SELECT f.tenant, f.session_id, f.n, o.n AS other
    FROM folds f
    JOIN folds o ON o.tenant = f.tenant AND o.session_id = f.session_id AND o.n > f.n
                AND o.from_seq <= f.to_seq AND o.to_seq >= f.from_seq
                AND (o.level = f.level OR f.covered_by IS NULL AND o.covered_by IS NULL)
    UNION ALL
    SELECT f.tenant, f.session_id, f.n, NULL
    FROM folds f
    JOIN messages m ON m.tenant = f.tenant AND m.session_id = f.session_id AND m.seq = f.to_seq + 1
                   AND m.asked_at_seq <= f.to_seq
) found
ORDER BY tenant, session_id, n
LIMIT $1;

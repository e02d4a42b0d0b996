-- The folds of a session that are shown, in order, by folds_shown.
SELECT tenant, session_id, {fold}
FROM folds
WHERE tenant = $1 AND session_id = $2 AND covered_by IS NULL
ORDER BY from_seq;

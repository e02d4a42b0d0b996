-- Every fold, by session.
SELECT tenant, session_id, {fold}
FROM folds
ORDER BY tenant, session_id, n;

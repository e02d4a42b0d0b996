-- All folds of a session that is not deleted, by their key.
SELECT tenant, session_id, {fold}
FROM folds
WHERE tenant = $1 AND session_id = $2
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2)
ORDER BY n;

-- A tenant's failed or cancelled sends, newest first, older than $2, of status $3, at most $4.
-- Index: sends_not_completed backwards.
SELECT {send}
FROM sends
WHERE tenant = $1 AND ($2 IS NULL OR send_id < $2) AND status = $3
  AND {not_end}
ORDER BY send_id DESC
LIMIT $4;

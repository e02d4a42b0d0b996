-- A timer's occurrences, newest first, those before $3, at most $4.
SELECT {occurrence}
FROM timer_occurrences
WHERE tenant = $1 AND timer_id = $2 AND ($3 IS NULL OR n < $3)
ORDER BY n DESC
LIMIT $4;

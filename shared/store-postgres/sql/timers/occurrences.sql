-- Reads a page of a timer's occurrences, newest first.
-- Index: timer_occurrences_pkey backwards.
SELECT {o.occurrence}
FROM timer_occurrences o
WHERE o.tenant = $1::integer AND o.timer_id = $2::uuid AND ($3::bigint IS NULL OR o.n < $3::bigint)
ORDER BY o.n DESC
LIMIT $4::bigint

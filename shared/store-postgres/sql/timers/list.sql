-- Reads a page of a tenant's timers, newest first.
-- Index: timers_pkey backwards, or timers_session.
SELECT
    0::bigint AS ord, {t.timer}
FROM timers t
WHERE t.tenant = $1::integer
  AND ($2::uuid IS NULL OR t.session_id = $2::uuid)
  AND ($3::text IS NULL OR t.status = $3::text)
  AND ($4::uuid IS NULL OR t.timer_id < $4::uuid)
ORDER BY t.timer_id DESC
LIMIT $5::bigint

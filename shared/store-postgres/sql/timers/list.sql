-- Reads a page of a tenant's timers, newest first.
-- Index: timers_pkey backwards, or timers_session.
SELECT
    0::bigint AS ord, t.tenant, t.timer_id, t.target, t.rule, t.status, t.next_n, t.due_at, t.fire_at, t.failures, t.failure,
    t.last_send, t.last_fired_at, t.ended_at, t.created_at, t.updated_at
FROM timers t
WHERE t.tenant = $1::integer
  AND ($2::uuid IS NULL OR t.session_id = $2::uuid)
  AND ($3::text IS NULL OR t.status = $3::text)
  AND ($4::uuid IS NULL OR t.timer_id < $4::uuid)
ORDER BY t.timer_id DESC
LIMIT $5::bigint

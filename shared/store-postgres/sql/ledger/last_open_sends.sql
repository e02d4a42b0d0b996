-- Reads the last open sends of a session whose hot row is locked, at most $3: those without a
-- position first.
-- Index: sends_open.
SELECT
    0::bigint AS ord, {s.send}
FROM sends s
WHERE s.tenant = $1::integer AND s.session_id = $2::uuid AND s.finished_at IS NULL
ORDER BY s.position DESC NULLS FIRST, s.send_id DESC
LIMIT $3::bigint

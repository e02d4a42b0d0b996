-- Extends the deadline of a session whose messages arrive page by page. No row if it has passed:
-- the session is being removed.
-- Index: erasures_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
UPDATE erasures e SET due_at = c.now + $4::bigint
FROM clock c
WHERE e.tenant = $2::integer AND e.session_id = $3::uuid AND e.seq = 0 AND e.due_at > c.now
RETURNING 1 AS held

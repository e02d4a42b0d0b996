-- Reads advances of a run, in order.
-- Index: run_steps_pkey.
SELECT t.n, t.at, t.boot, t.changes FROM run_steps t
WHERE t.tenant = $1::integer AND t.run_id = $2::uuid AND t.n > $3::bigint
ORDER BY t.n
LIMIT $4::bigint

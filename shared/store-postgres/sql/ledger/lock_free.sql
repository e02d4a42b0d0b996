-- Locks hot rows without waiting, and returns those that another transaction has locked. As it
-- never waits for a lock, it needs no lock order.
-- Index: session_hot_pkey.
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT i.tenant, i.session_id
    FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
),
free AS MATERIALIZED (
    SELECT h.tenant, h.session_id
    FROM wanted w
    JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
    FOR UPDATE OF h SKIP LOCKED
)
SELECT h.tenant, h.session_id
FROM wanted w
JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
-- NOT IN instead of NOT EXISTS: the planner cannot estimate how many are free, and would plan NOT
-- EXISTS as a loop over all pairs.
WHERE (w.tenant, w.session_id) NOT IN (SELECT f.tenant, f.session_id FROM free f)

-- Locks hot rows without waiting, and answers those that someone else has locked. Waiting for no lock,
-- it needs no order among them.
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
-- Not NOT EXISTS: as nobody can tell how many are free, that is planned as a loop over all pairs.
WHERE (w.tenant, w.session_id) NOT IN (SELECT f.tenant, f.session_id FROM free f)

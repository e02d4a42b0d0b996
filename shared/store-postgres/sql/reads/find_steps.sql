-- Finds where steps are that were committed within a time. Asked of a planner that may read an index in pieces.
-- $1 is not before $3, so that each page reads the index from where the last one ended.
-- Index: steps_at.
SELECT t.at, t.tenant, t.session_id, t.n
FROM steps t
WHERE t.at >= $1::bigint AND t.at < $2::bigint
    AND (t.at, t.tenant, t.session_id, t.n) > ($3::bigint, $4::integer, $5::uuid, $6::bigint)
ORDER BY t.at, t.tenant, t.session_id, t.n
LIMIT $7::bigint

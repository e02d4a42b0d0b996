-- Sessions after ($3, $4) with steps that were committed from $1 on and before $2, at most $5, with
-- the first and the last of these steps.
-- Index: steps_at. The time range is read from it first: in the order of sessions, all steps would
-- be read.
SELECT tenant, session_id, MIN(n) AS first_n, MAX(n) AS last_n
FROM (
    SELECT tenant, session_id, n FROM steps WHERE at >= $1 AND at < $2 LIMIT 9223372036854775807
) AS found
WHERE (tenant, session_id) > ($3, $4)
GROUP BY tenant, session_id
ORDER BY tenant, session_id
LIMIT $5;

-- Which steps of sessions behind ($3, $4) were committed from $1 on and before $2, of at most $5 sessions.
-- Index: steps_at. What is within the time is read from it first: by the sessions' order all steps would be.
SELECT tenant, session_id, MIN(n) AS first_n, MAX(n) AS last_n
FROM (
    SELECT tenant, session_id, n FROM steps WHERE at >= $1 AND at < $2 LIMIT 9223372036854775807
) AS found
WHERE (tenant, session_id) > ($3, $4)
GROUP BY tenant, session_id
ORDER BY tenant, session_id
LIMIT $5;

-- Where steps are that were committed from $1 on and before $2, behind ($3, $4, $5, $6), at most $7.
-- $1 is not before $3, so that each page reads the index from where the last one ended.
-- Index: steps_at.
SELECT at, tenant, session_id, n
FROM steps
WHERE at >= $1 AND at < $2 AND (at, tenant, session_id, n) > ($3, $4, $5, $6)
ORDER BY at, tenant, session_id, n
LIMIT $7;

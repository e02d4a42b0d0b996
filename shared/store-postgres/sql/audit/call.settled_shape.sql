-- A call has a result exactly if it has a time of settling, a settled call waits for nobody, and a
-- call has a grant exactly if it was started.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object('session', c.session_id, 'call', c.call_id)::text AS row
FROM tool_calls c
WHERE (c.settled_at IS NULL) <> (c.result IS NULL)
   OR (c.settled_at IS NOT NULL AND c.waits_on IS NOT NULL)
   OR (c.started_epoch IS NULL) <> (c.attempt = 0)
ORDER BY c.tenant, c.session_id, c.call_id
LIMIT (SELECT b.rows_max FROM bound b)

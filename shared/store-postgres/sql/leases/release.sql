-- Releases leases and leaves their sends as they are. `ready_since` is kept, so that the session
-- keeps its place among the ready ones. An item without a row in the result had already lost its
-- lease. A running send counts one more attempt if a model call of it may have been lost (1), and
-- one more crash if its calls were lost with the process that made them (2).
-- Index: session_hot_pkey, sends_open.
WITH hot AS MATERIALIZED (
    SELECT i.ord, h.tenant, h.session_id, CASE WHEN h.active = 1 THEN i.lost ELSE 0 END AS lost
    FROM unnest($1::integer[], $2::uuid[], $3::uuid[], $4::smallint[])
        WITH ORDINALITY AS i (tenant, session_id, token, lost, ord)
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
begun AS (
    UPDATE sends s SET attempts = s.attempts + (o.lost = 1)::integer,
        crashes = s.crashes + (o.lost = 2)::integer
    FROM hot o
    WHERE o.lost > 0 AND s.tenant = o.tenant AND s.session_id = o.session_id
      AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
)
UPDATE session_hot h SET owner_boot = NULL, token = NULL
FROM hot o
WHERE h.tenant = o.tenant AND h.session_id = o.session_id
RETURNING o.ord

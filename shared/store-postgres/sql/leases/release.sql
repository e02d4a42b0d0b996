-- Gives leases back with their sends as they are. `ready_since` stays, so that the session keeps
-- its place among the ready ones. An item without a row in the answer had lost its lease. A send of
-- which a model call may have been lost counts it.
-- Index: session_hot_pkey, sends_open.
WITH hot AS MATERIALIZED (
    SELECT i.ord, h.tenant, h.session_id, i.lost AND h.active = 1 AS counts
    FROM unnest($1::integer[], $2::uuid[], $3::uuid[], $4::boolean[])
        WITH ORDINALITY AS i (tenant, session_id, token, lost, ord)
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
begun AS (
    UPDATE sends s SET attempts = s.attempts + 1
    FROM hot o
    WHERE o.counts AND s.tenant = o.tenant AND s.session_id = o.session_id
      AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
)
UPDATE session_hot h SET owner_boot = NULL, token = NULL
FROM hot o
WHERE h.tenant = o.tenant AND h.session_id = o.session_id
RETURNING o.ord

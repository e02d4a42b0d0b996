-- The first sessions in a tenant's line that still have work, up to a number of each kind, except
-- those that were called more than $5 milliseconds ago: others may pass them.
-- Index: seats_agents, session_hot_pkey.
SELECT w.session_id, w.agent, w.leaf, w.waits_since, w.called_at, w.pool, w.priority, w.ready_since
FROM unnest($3::text[], $4::boolean[], $6::bigint[]) AS k (agent, leaf, places)
CROSS JOIN LATERAL (
    SELECT s.session_id, s.agent, s.leaf, s.waits_since, s.called_at, h.pool, h.priority, h.ready_since
    FROM seats s
    JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
    WHERE s.tenant = $2::integer AND s.agent = k.agent AND s.leaf = k.leaf AND s.waits_since IS NOT NULL
      AND (
          s.called_at IS NULL
          OR s.called_at > coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $5::bigint
      )
      AND h.ready_since IS NOT NULL AND h.lifecycle <> 2 AND h.active <> 1
    ORDER BY s.waits_since, s.session_id
    LIMIT k.places
) w

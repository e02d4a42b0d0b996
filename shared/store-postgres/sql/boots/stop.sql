-- Ends a boot's life and releases what it still owns. A dead boot stays as it is, but what was not
-- taken from it yet is released, too. Running sends count a model call that may have been started.
-- The hot rows are locked first, as everywhere.
-- Index: session_hot_ready, sends_open, boots_pkey.
WITH hot AS MATERIALIZED (
    SELECT h.tenant, h.session_id, h.active
    FROM session_hot h
    WHERE h.ready_since IS NOT NULL AND h.owner_boot = $2::uuid
    ORDER BY h.tenant, h.session_id
    FOR UPDATE
),
given AS (
    UPDATE session_hot h SET owner_boot = NULL, token = NULL
    FROM hot o
    WHERE h.tenant = o.tenant AND h.session_id = o.session_id
),
begun AS (
    UPDATE sends s SET attempts = s.attempts + 1
    FROM hot o
    WHERE o.active = 1 AND s.tenant = o.tenant AND s.session_id = o.session_id
      AND s.finished_at IS NULL AND s.position IS NOT NULL AND s.status = 'running'
)
UPDATE boots b SET dead_at = c.now, lease_until = c.now
FROM (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        (SELECT count(*) FROM hot) AS given
) c
WHERE b.boot_id = $2::uuid AND b.dead_at IS NULL AND c.given >= 0

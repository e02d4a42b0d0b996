-- Begins a session whose messages arrive page by page. It is not visible, and it is removed like a
-- deleted one if no page arrives for $4 milliseconds.
-- Index: session_hot_pkey, erasures_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
hot AS (
    INSERT INTO session_hot (tenant, session_id, pool, lifecycle)
    VALUES ($2::integer, $3::uuid, $5::text, 2)
    ON CONFLICT DO NOTHING
)
INSERT INTO erasures (tenant, session_id, due_at, deleted_at)
SELECT $2::integer, $3::uuid, c.now + $4::bigint, c.now FROM clock c
ON CONFLICT DO NOTHING

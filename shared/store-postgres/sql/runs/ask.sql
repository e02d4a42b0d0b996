-- Stores asks for runs that exist; returns which do.
-- Index: runs_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
known AS MATERIALIZED (
    SELECT i.ord, r.tenant, r.run_id, i.ask
    FROM unnest($2::integer[], $3::uuid[], $4::text[]) WITH ORDINALITY AS i (tenant, run_id, ask, ord)
    JOIN runs r ON r.tenant = i.tenant AND r.run_id = i.run_id
),
stored AS (
    INSERT INTO run_asks (tenant, run_id, ask, created_at)
    SELECT k.tenant, k.run_id, k.ask, c.now FROM known k CROSS JOIN clock c ORDER BY k.ord
)
SELECT k.ord FROM known k

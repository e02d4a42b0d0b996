-- Claims runs with ended leaves, with asks or with a due alarm, unless another live boot owns them,
-- or the caller does not support their DSL version or excludes them; runs that another transaction
-- has locked are skipped. Those whose last advance is longest ago come first, so that none starves
-- behind wide ones.
-- Index: sends_run_ended, run_asks_pkey, runs_alarm, runs_pkey, run_steps_pkey, boots_pkey.
WITH news AS MATERIALIZED (
    SELECT s.tenant, s.run_id FROM sends s
    WHERE s.run_id IS NOT NULL AND s.finished_at IS NOT NULL AND s.reported_at IS NULL
    UNION
    SELECT a.tenant, a.run_id FROM run_asks a
    UNION
    SELECT d.tenant, d.run_id FROM runs d WHERE d.alarm_at <= $1::bigint
),
mine AS MATERIALIZED (
    SELECT r.tenant, r.run_id, r.step, r.owner_boot, r.claims, coalesce(t.at, r.created_at) AS looked_at
    FROM news w
    JOIN runs r ON r.tenant = w.tenant AND r.run_id = w.run_id
    LEFT JOIN run_steps t ON t.tenant = r.tenant AND t.run_id = r.run_id AND t.n = r.step
    WHERE (
        r.owner_boot IS NULL OR r.owner_boot = $2::uuid OR NOT EXISTS (
            SELECT FROM boots b
            WHERE b.boot_id = r.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $1::bigint
        )
    )
    AND r.dsl_version <= $4::integer
    AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = r.tenant)
    AND NOT EXISTS (
        SELECT FROM unnest($5::integer[], $6::uuid[]) AS a (tenant, run_id)
        WHERE a.tenant = r.tenant AND a.run_id = r.run_id
    )
    ORDER BY looked_at, r.tenant, r.run_id
    LIMIT $3::bigint
    FOR NO KEY UPDATE OF r SKIP LOCKED
),
owned AS (
    UPDATE runs r SET owner_boot = $2::uuid, claims = r.claims + 1
    FROM mine m
    WHERE r.tenant = m.tenant AND r.run_id = m.run_id AND m.owner_boot IS DISTINCT FROM $2::uuid
)
SELECT
    m.tenant, m.run_id, m.step,
    m.claims + (m.owner_boot IS DISTINCT FROM $2::uuid)::integer AS claims
FROM mine m ORDER BY m.looked_at, m.tenant, m.run_id

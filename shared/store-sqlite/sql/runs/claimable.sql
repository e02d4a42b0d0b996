-- Runs with ended leaves (sends_run_ended), with asks, or whose time has come (runs_alarm), unless
-- another boot that lives at $1 owns them.
SELECT r.tenant, r.run_id, r.step
FROM (
    SELECT tenant, run_id FROM sends
    WHERE run_id IS NOT NULL AND finished_at IS NOT NULL AND reported_at IS NULL
    UNION
    SELECT tenant, run_id FROM run_asks
    UNION
    SELECT tenant, run_id FROM runs WHERE alarm_at <= $1
) w
JOIN runs r ON r.tenant = w.tenant AND r.run_id = w.run_id
WHERE r.owner_boot IS NULL OR r.owner_boot = $2
   OR NOT EXISTS (
       SELECT 1 FROM boots b
       WHERE b.boot_id = r.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $1
   )
ORDER BY r.tenant, r.run_id
LIMIT $3;

-- Runs with ended leaves (sends_run_ended), with asks or with a due alarm (runs_alarm), unless
-- another boot that is alive at $1 owns them, their DSL version is later than $4, or they are among
-- $5, a list of tenants and ids. Those whose last advance is longest ago come first.
SELECT r.tenant, r.run_id, r.step,
       r.claims + CASE WHEN r.owner_boot = $2 THEN 0 ELSE 1 END AS claims
FROM (
    SELECT tenant, run_id FROM sends
    WHERE run_id IS NOT NULL AND finished_at IS NOT NULL AND reported_at IS NULL
    UNION
    SELECT tenant, run_id FROM run_asks
    UNION
    SELECT tenant, run_id FROM runs WHERE alarm_at <= $1
) w
JOIN runs r ON r.tenant = w.tenant AND r.run_id = w.run_id
LEFT JOIN run_steps t ON t.tenant = r.tenant AND t.run_id = r.run_id AND t.n = r.step
WHERE (r.owner_boot IS NULL OR r.owner_boot = $2
       OR NOT EXISTS (
           SELECT 1 FROM boots b
           WHERE b.boot_id = r.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $1
       ))
  AND r.dsl_version <= $4
  AND NOT EXISTS (
      SELECT 1 FROM json_each($5) a
      WHERE a.value ->> 0 = r.tenant AND a.value ->> 1 = hex(r.run_id)
  )
ORDER BY coalesce(t.at, r.created_at), r.tenant, r.run_id
LIMIT $3;

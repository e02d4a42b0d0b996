-- Claims a run that is at step $4 for boot $3, unless another boot that is alive at $5 owns it. MySQL
-- assigns from the left to the right, so the count comes first.
UPDATE runs
SET claims = CASE WHEN owner_boot = $3 THEN claims ELSE claims + 1 END, owner_boot = $3
WHERE tenant = $1 AND run_id = $2 AND step = $4
  AND (owner_boot IS NULL OR owner_boot = $3
       OR NOT EXISTS (
           SELECT 1 FROM boots b
           WHERE b.boot_id = runs.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $5
       ));

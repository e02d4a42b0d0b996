-- Writes a run after an advance, if the boot owns it and it was not advanced since.
UPDATE runs
SET status = $5, attempt = $6, options = $7, result = $8, error = $9, "usage" = $10, counts = $11,
    alarm_at = $12, started_at = $13, finished_at = $14, owner_boot = $15, step = step + 1,
    claims = 0
WHERE tenant = $1 AND run_id = $2 AND owner_boot = $3 AND step = $4;

-- What works for a call, sends and runs that are not final: whoever waited for it may have ended, and
-- the process that would have ended it may have died. reporting is 1 on them, else null.
ALTER TABLE sends
    ADD COLUMN reporting TINYINT AS (
        CASE WHEN reports_to IS NOT NULL AND finished_at IS NULL THEN 1 END
    ) VIRTUAL,
    ADD KEY sends_reporting (reporting, tenant, send_id);
ALTER TABLE runs
    ADD COLUMN reporting TINYINT AS (
        CASE WHEN reports_to IS NOT NULL AND finished_at IS NULL THEN 1 END
    ) VIRTUAL,
    ADD KEY runs_reporting (reporting, tenant, run_id);

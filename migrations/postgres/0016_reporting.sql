-- What works for a call, sends and runs that are not final: whoever waited for it may have ended, and
-- the process that would have ended it may have died. Nothing in the keys ever changes, so that a
-- claim stays heap-only.
CREATE INDEX sends_reporting ON sends (tenant, send_id)
    WHERE reports_to IS NOT NULL AND finished_at IS NULL;
CREATE INDEX runs_reporting ON runs (tenant, run_id)
    WHERE reports_to IS NOT NULL AND finished_at IS NULL;

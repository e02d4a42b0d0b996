-- Removes a run that is final.
DELETE FROM runs WHERE tenant = $1 AND run_id = $2 AND finished_at IS NOT NULL;

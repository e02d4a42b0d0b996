-- Takes a run.
UPDATE runs SET owner_boot = $3 WHERE tenant = $1 AND run_id = $2;

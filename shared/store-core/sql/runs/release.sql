-- Releases a run that the boot owns.
UPDATE runs SET owner_boot = NULL WHERE tenant = $1 AND run_id = $2 AND owner_boot = $3;

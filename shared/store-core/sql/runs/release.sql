-- Releases a run that the boot owns, and so has survived.
UPDATE runs SET owner_boot = NULL, claims = 0 WHERE tenant = $1 AND run_id = $2 AND owner_boot = $3;

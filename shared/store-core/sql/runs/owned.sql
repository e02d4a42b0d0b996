-- Whether boot $3 owns a run that is at step $4.
SELECT EXISTS (
    SELECT 1 FROM runs WHERE tenant = $1 AND run_id = $2 AND owner_boot = $3 AND step = $4
);

-- Every run, with its owner and its advances so far.
SELECT {run},
       owner_boot, step
FROM runs
ORDER BY tenant, run_id;

-- Every run, with its owner and the number of its advances.
SELECT {run},
       owner_boot, step
FROM runs
ORDER BY tenant, run_id;

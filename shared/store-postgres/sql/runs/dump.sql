-- Every run, with its owner and the number of its advances.
SELECT
    0::bigint AS ord, {r.run},
    r.owner_boot, r.step
FROM runs r
ORDER BY r.tenant, r.run_id

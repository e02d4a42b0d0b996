-- Every run, with its owner and its advances so far.
SELECT
    0::bigint AS ord, {r.run},
    r.owner_boot, r.step
FROM runs r
ORDER BY r.tenant, r.run_id

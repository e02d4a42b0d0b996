-- Every run, with its owner and its advances so far.
SELECT
    0::bigint AS ord, r.tenant, r.run_id, r.name, r.status, r.spec, r.dsl_version, r.input, r.options,
    r.session_id, r.reports_to, r.depth, r.attempt, r.result, r.error, r.usage, r.counts,
    r.alarm_at, r.created_at, r.started_at, r.finished_at,
    r.owner_boot, r.step
FROM runs r
ORDER BY r.tenant, r.run_id

-- Reads runs by id; no row for an unknown one.
-- Index: runs_pkey.
SELECT
    i.ord, r.tenant, r.run_id, r.name, r.status, r.spec, r.dsl_version, r.input, r.options,
    r.session_id, r.reports_to, r.depth, r.attempt, r.result, r.error, r.usage, r.counts,
    r.alarm_at, r.created_at, r.started_at, r.finished_at
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, run_id, ord)
JOIN runs r ON r.tenant = i.tenant AND r.run_id = i.run_id

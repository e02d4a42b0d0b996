-- Leaves under way in all runs of a tenant, and in one of them. Index: runs_open.
SELECT
    coalesce(sum(json_extract(counts, '$.live')), 0),
    coalesce(sum(json_extract(counts, '$.live')) FILTER (WHERE run_id = $2), 0)
FROM runs
WHERE tenant = $1 AND finished_at IS NULL;

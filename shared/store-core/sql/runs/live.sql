-- Leaves under way in all runs of a tenant, and in one of them. Index: runs_open.
SELECT
    coalesce(sum(json_extract(counts, '$.live')), 0) AS all_live,
    coalesce(sum(json_extract(counts, '$.live')) FILTER (WHERE run_id = $2), 0) AS own_live
FROM runs
WHERE tenant = $1 AND finished_at IS NULL;

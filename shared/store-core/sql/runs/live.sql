-- Number of leaves in flight in all runs of a tenant, and in one of them. The runs are locked:
-- advances that count against the tenant's limit run one after another. Index: runs_open.
SELECT CAST(coalesce(sum(counts ->> 'live'), 0) AS INTEGER) AS all_live,
       CAST(coalesce(sum(CASE WHEN run_id = $2 THEN counts ->> 'live' END), 0) AS INTEGER) AS own_live
FROM runs
WHERE tenant = $1 AND finished_at IS NULL
{lock};

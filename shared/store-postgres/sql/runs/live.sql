-- The open runs of some tenants, each with its number of leaves in flight. Index: runs_open.
SELECT r.tenant, r.run_id, (r.counts::json ->> 'live')::bigint AS live
FROM runs r
WHERE r.tenant = ANY ($1::integer[]) AND r.finished_at IS NULL

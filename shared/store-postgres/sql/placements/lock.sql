-- Lets one transaction at a time change the catalogue, so that its versions become visible in
-- order. The commit survives a crash: rows are removed because of what the catalogue says.
SELECT
    pg_advisory_xact_lock(7737423, 3)::text AS locked,
    set_config('synchronous_commit', 'on', TRUE) AS durable

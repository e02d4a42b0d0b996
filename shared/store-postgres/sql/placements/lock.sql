-- Nobody else changes the catalogue until the transaction ends: its versions are visible in their order. What
-- it says then is so behind a crash: rows are removed because of it.
SELECT
    pg_advisory_xact_lock(7737423, 3)::text AS locked,
    set_config('synchronous_commit', 'on', TRUE) AS durable

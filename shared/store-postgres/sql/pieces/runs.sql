-- The rows of the runs $5 to $6 of the tenant $4, under the names of the tables: the invariants
-- that follow see nothing else, and take $1 to $3.
-- Sends are left out, as they have no index by their run.
-- Index: the primary keys.
WITH
    runs AS MATERIALIZED (
        SELECT x.* FROM runs x
        WHERE x.tenant = $4::integer AND x.run_id BETWEEN $5::uuid AND $6::uuid
    ),
    run_nodes AS MATERIALIZED (
        SELECT x.* FROM run_nodes x
        WHERE x.tenant = $4::integer AND x.run_id BETWEEN $5::uuid AND $6::uuid
    ),
    run_steps AS MATERIALIZED (
        SELECT x.* FROM run_steps x
        WHERE x.tenant = $4::integer AND x.run_id BETWEEN $5::uuid AND $6::uuid
    ),
    sends AS MATERIALIZED (SELECT x.* FROM sends x LIMIT 0)
SELECT
    '' AS invariant,
    json_build_object(
        'count', count(*), 'at', $1::bigint, 'takeover_ms', $2::bigint, 'rows_max', $3::bigint
    )::text AS row
FROM runs

-- The rows of the timers $5 to $6 of the tenant $4, under the names of the tables: the invariants
-- that follow see nothing else, and take $1 to $3.
-- Index: the primary keys.
WITH
    timers AS MATERIALIZED (
        SELECT x.* FROM timers x
        WHERE x.tenant = $4::integer AND x.timer_id BETWEEN $5::uuid AND $6::uuid
    ),
    timer_occurrences AS MATERIALIZED (
        SELECT x.* FROM timer_occurrences x
        WHERE x.tenant = $4::integer AND x.timer_id BETWEEN $5::uuid AND $6::uuid
    )
SELECT
    '' AS invariant,
    json_build_object(
        'count', count(*), 'at', $1::bigint, 'takeover_ms', $2::bigint, 'rows_max', $3::bigint
    )::text AS row
FROM timers

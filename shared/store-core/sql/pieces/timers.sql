-- The rows of the timers $6 to $7 of the tenant $5, under the names of the tables: the invariants
-- that follow see nothing else.
WITH timers AS MATERIALIZED (
    SELECT * FROM main.timers WHERE tenant = $5 AND timer_id BETWEEN $6 AND $7
), timer_occurrences AS MATERIALIZED (
    SELECT * FROM main.timer_occurrences WHERE tenant = $5 AND timer_id BETWEEN $6 AND $7
)
SELECT '' AS invariant, json_object('count', count(*)) AS violation FROM timers

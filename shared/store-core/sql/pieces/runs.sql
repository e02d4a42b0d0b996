-- The rows of the runs $6 to $7 of the tenant $5, under the names of the tables: the invariants
-- that follow see nothing else. Sends are left out, as they have no index by their run.
WITH runs AS MATERIALIZED (
    SELECT * FROM main.runs WHERE tenant = $5 AND run_id BETWEEN $6 AND $7
), run_nodes AS MATERIALIZED (
    SELECT * FROM main.run_nodes WHERE tenant = $5 AND run_id BETWEEN $6 AND $7
), run_steps AS MATERIALIZED (
    SELECT * FROM main.run_steps WHERE tenant = $5 AND run_id BETWEEN $6 AND $7
), sends AS MATERIALIZED (
    SELECT * FROM main.sends LIMIT 0
)
SELECT '' AS invariant, json_object('count', count(*)) AS violation FROM runs

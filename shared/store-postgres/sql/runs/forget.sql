-- Deletes runs that are final, with their nodes, asks and advances.
-- Index: runs_pkey, run_nodes_pkey, run_asks_run, run_steps_pkey.
WITH gone AS (
    DELETE FROM runs d
    USING unnest($1::integer[], $2::uuid[]) AS i (tenant, run_id)
    WHERE d.tenant = i.tenant AND d.run_id = i.run_id AND d.finished_at IS NOT NULL
    RETURNING d.tenant, d.run_id
),
nodes_gone AS (
    DELETE FROM run_nodes d USING gone g
    WHERE d.tenant = g.tenant AND d.run_id = g.run_id
    RETURNING 1
),
asks_gone AS (
    DELETE FROM run_asks d USING gone g
    WHERE d.tenant = g.tenant AND d.run_id = g.run_id
    RETURNING 1
),
steps_gone AS (
    DELETE FROM run_steps d USING gone g
    WHERE d.tenant = g.tenant AND d.run_id = g.run_id
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM gone) + (SELECT count(*) FROM nodes_gone)
        + (SELECT count(*) FROM asks_gone) + (SELECT count(*) FROM steps_gone) AS removed

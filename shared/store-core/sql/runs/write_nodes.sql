-- Writes new or changed nodes; $3 is a list of them.
INSERT INTO run_nodes (tenant, run_id, path, n, state, node)
SELECT $1, $2, value ->> 'path', value ->> 'n', value ->> 'state', value
FROM json_each($3)
WHERE TRUE
ON CONFLICT (tenant, run_id, path)
DO UPDATE SET n = excluded.n, state = excluded.state, node = excluded.node;

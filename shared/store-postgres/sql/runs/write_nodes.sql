-- Writes new or changed nodes.
-- Index: run_nodes_pkey.
INSERT INTO run_nodes (tenant, run_id, path, n, state, node)
SELECT i.tenant, i.run_id, i.path, i.n, i.state, i.node
FROM unnest($1::integer[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[])
    AS i (tenant, run_id, path, n, state, node)
ON CONFLICT (tenant, run_id, path)
DO UPDATE SET n = excluded.n, state = excluded.state, node = excluded.node

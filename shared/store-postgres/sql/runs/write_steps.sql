-- Writes one row per advance.
INSERT INTO run_steps (tenant, run_id, n, at, boot, changes)
SELECT i.tenant, i.run_id, i.n, $1::bigint, $2::uuid, i.changes
FROM unnest($3::integer[], $4::uuid[], $5::bigint[], $6::text[]) AS i (tenant, run_id, n, changes)

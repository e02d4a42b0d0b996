-- Which of these runs a boot owns and are at these steps.
-- Index: runs_pkey.
SELECT i.ord
FROM unnest($2::integer[], $3::uuid[], $4::bigint[]) WITH ORDINALITY AS i (tenant, run_id, step, ord)
JOIN runs r ON r.tenant = i.tenant AND r.run_id = i.run_id
WHERE r.owner_boot = $1::uuid AND r.step = i.step

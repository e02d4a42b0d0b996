-- Reads which advances were stored, after a commit whose response was lost.
-- Index: run_steps_pkey.
SELECT i.ord
FROM unnest($2::integer[], $3::uuid[], $4::bigint[]) WITH ORDINALITY AS i (tenant, run_id, step, ord)
JOIN run_steps t
    ON t.tenant = i.tenant AND t.run_id = i.run_id AND t.n = i.step + 1 AND t.boot = $1::uuid

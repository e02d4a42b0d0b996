-- Reads runs by id; no row for an unknown one.
-- Index: runs_pkey.
SELECT
    i.ord, {r.run}
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, run_id, ord)
JOIN runs r ON r.tenant = i.tenant AND r.run_id = i.run_id

-- Releases runs that a boot owns, and so has survived.
-- Index: runs_pkey.
UPDATE runs r SET owner_boot = NULL, claims = 0
FROM unnest($2::integer[], $3::uuid[]) AS i (tenant, run_id)
WHERE r.tenant = i.tenant AND r.run_id = i.run_id AND r.owner_boot = $1::uuid

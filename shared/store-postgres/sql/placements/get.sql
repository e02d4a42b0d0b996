-- Index: placements_pkey.
SELECT p.tenant, p.place, p.other, p.phase, p.version, p.began, p.changed_at
FROM placements p WHERE p.tenant = $1::integer

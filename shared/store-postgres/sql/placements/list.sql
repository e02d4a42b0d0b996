-- The rows of the catalogue that were changed after $1, in the order of their changes.
-- Index: placements_version_key.
SELECT p.tenant, p.place, p.other, p.phase, p.version, p.began, p.changed_at
FROM placements p WHERE p.version > $1::bigint ORDER BY p.version

-- Writes a row of the catalogue, under the catalogue's next version.
-- Index: placements_pkey, placements_version_key.
INSERT INTO placements AS p (tenant, place, other, phase, version, began, changed_at)
SELECT
    $2::integer, $3::text, $4::text, $5::text, n.version, n.version,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
FROM (SELECT coalesce(max(o.version), 0) + 1 AS version FROM placements o) n
ON CONFLICT (tenant) DO UPDATE SET
    place = excluded.place, other = excluded.other, phase = excluded.phase,
    version = excluded.version, changed_at = excluded.changed_at,
    began = CASE WHEN excluded.phase = 'copying' THEN excluded.began ELSE p.began END
RETURNING p.tenant, p.place, p.other, p.phase, p.version, p.began, p.changed_at

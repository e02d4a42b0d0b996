-- Listed skills whose version is missing, files that a version lists but does not have, and files
-- that it has but does not list.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
listed AS MATERIALIZED (
    SELECT v.tenant, v.name, v.hash, j.value ->> 'path' AS path, (j.value ->> 'bytes')::bigint AS bytes
    FROM skill_versions v, json_array_elements(v.body::json -> 'files') j
),
kept AS MATERIALIZED (
    SELECT f.tenant, f.name, f.hash, f.path, length(f.content) AS bytes FROM skill_files f
)
SELECT json_build_object('tenant', x.tenant, 'skill', x.name, 'hash', x.hash, x.what, x.part)::text AS row
FROM (
    SELECT s.tenant, s.name, s.hash, 'version' AS what, s.hash AS part
    FROM skills s
    LEFT JOIN skill_versions v ON v.tenant = s.tenant AND v.name = s.name AND v.hash = s.hash
    WHERE s.listed AND v.hash IS NULL
    UNION ALL
    SELECT l.tenant, l.name, l.hash, 'file', l.path
    FROM listed l
    LEFT JOIN kept k ON k.tenant = l.tenant AND k.name = l.name AND k.hash = l.hash AND k.path = l.path
    WHERE k.path IS NULL OR k.bytes <> l.bytes
    UNION ALL
    SELECT k.tenant, k.name, k.hash, 'file', k.path
    FROM kept k
    LEFT JOIN listed l ON l.tenant = k.tenant AND l.name = k.name AND l.hash = k.hash AND l.path = k.path
    WHERE l.path IS NULL
) x
ORDER BY x.tenant, x.name, x.hash, x.part
LIMIT (SELECT b.rows_max FROM bound b)

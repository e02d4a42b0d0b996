-- Listed skills whose version is missing, files that a version lists but does not have, and files
-- that it has but does not list.
WITH listed AS MATERIALIZED (
    SELECT v.tenant, v.name, v.hash, json_extract(j.value, '$.path') AS path, json_extract(j.value, '$.bytes') AS bytes
    FROM skill_versions v, json_each(v.body, '$.files') j
), kept AS MATERIALIZED (
    SELECT f.tenant, f.name, f.hash, f.path, length(f.content) AS bytes FROM skill_files f
)
SELECT json_object('tenant', x.tenant, 'skill', x.name, 'hash', x.hash, x.what, x.part)
FROM (
    SELECT s.tenant, s.name, s.hash, 'version' AS what, s.hash AS part
    FROM skills s
    LEFT JOIN skill_versions v ON v.tenant = s.tenant AND v.name = s.name AND v.hash = s.hash
    WHERE s.listed = 1 AND v.hash IS NULL
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
LIMIT $1;

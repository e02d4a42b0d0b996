-- The columns of a table that are written, by name: all except those that the database computes.
SELECT a.attname::text AS name, a.attidentity::text AS identity
FROM pg_attribute a
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attname

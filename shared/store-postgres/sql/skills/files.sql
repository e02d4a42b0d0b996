-- Files of a version.
SELECT path, content FROM skill_files
WHERE tenant = $1 AND name = $2 AND hash = $3 AND path = ANY($4::text[]);

-- A file of a version.
SELECT content FROM skill_files WHERE tenant = $1 AND name = $2 AND hash = $3 AND path = $4;

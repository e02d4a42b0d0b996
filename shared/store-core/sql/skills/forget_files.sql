-- Removes the files of all versions of a name, unless a version was published in the meantime.
DELETE FROM skill_files WHERE tenant = $1 AND name = $2
  AND NOT EXISTS (SELECT 1 FROM skills s WHERE s.tenant = $1 AND s.name = $2);

-- Removes all versions of a name, unless one was published in the meantime.
DELETE FROM skill_versions WHERE tenant = $1 AND name = $2
  AND NOT EXISTS (SELECT FROM skills s WHERE s.tenant = $1 AND s.name = $2);

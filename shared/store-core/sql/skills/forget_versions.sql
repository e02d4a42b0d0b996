-- Removes all versions of a name.
DELETE FROM skill_versions WHERE tenant = $1 AND name = $2;

-- Removes the files of all versions of a name.
DELETE FROM skill_files WHERE tenant = $1 AND name = $2;

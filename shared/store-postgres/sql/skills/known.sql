-- Whether a version is stored.
SELECT hash FROM skill_versions WHERE tenant = $1 AND name = $2 AND hash = $3;

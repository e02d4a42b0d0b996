-- Makes a name refer to a version. The row is locked.
UPDATE skills SET hash = $3, source = $4, listed = true, updated_at = $5 WHERE tenant = $1 AND name = $2;

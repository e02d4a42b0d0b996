-- Unlists a name, and locks it.
UPDATE skills SET listed = 0, updated_at = $3 WHERE tenant = $1 AND name = $2 AND listed = 1;

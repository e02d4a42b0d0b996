-- Removes a name that means nothing.
DELETE FROM skills WHERE tenant = $1 AND name = $2 AND listed = 0;

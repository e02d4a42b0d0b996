-- Removes a name that is not listed.
DELETE FROM skills WHERE tenant = $1 AND name = $2 AND NOT listed;

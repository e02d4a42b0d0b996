-- What a name refers to, and whether it is listed.
SELECT hash, source, listed FROM skills WHERE tenant = $1 AND name = $2;

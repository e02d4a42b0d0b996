-- What a name means, if it is listed.
SELECT hash, source, listed FROM skills WHERE tenant = $1 AND name = $2;

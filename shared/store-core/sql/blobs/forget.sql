-- Removes the row of a marked blob.
DELETE FROM blobs WHERE tenant = $1 AND sha256 = $2 AND generation = $3 AND state = 2;

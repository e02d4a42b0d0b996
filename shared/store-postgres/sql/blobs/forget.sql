-- Removes the row of a marked blob. Index: the primary key.
DELETE FROM blobs
WHERE tenant = $1::integer AND sha256 = $2::bytea AND generation = $3::uuid AND state = 2

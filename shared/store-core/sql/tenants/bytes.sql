-- Bytes of the blobs of the tenant $1 that are there, by the primary key.
SELECT CAST(coalesce(sum(bytes), 0) AS INTEGER) AS bytes FROM blobs WHERE tenant = $1 AND state = 1;

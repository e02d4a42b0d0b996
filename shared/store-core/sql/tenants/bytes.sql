-- Bytes of the stored blobs of the tenant $1, by the primary key.
SELECT CAST(coalesce(sum(bytes), 0) AS INTEGER) AS bytes FROM blobs WHERE tenant = $1 AND state = 1;

-- Bytes of the stored blobs of a tenant. Index: blobs_pkey.
SELECT coalesce(sum(b.bytes), 0)::bigint AS bytes
FROM blobs b WHERE b.tenant = $1::integer AND b.state = 1

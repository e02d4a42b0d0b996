-- Ages the blobs of a tenant, which nothing holds any more, so that they are removed; counts them
-- and the chunks of their bytes.
-- Index: the primary keys.
WITH a AS (UPDATE blobs b SET used_at = 0 WHERE b.tenant = $1::integer AND b.used_at > 0)
SELECT (SELECT count(*) FROM blobs b WHERE b.tenant = $1::integer)
     + (SELECT count(*) FROM blob_chunks c WHERE c.tenant = $1::integer) AS blobs,
    coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now

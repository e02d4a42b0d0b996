-- Deletes a bounded number of API keys that were revoked or expired long ago. There are few, and
-- all are read.
DELETE FROM api_keys k
WHERE k.key_id = ANY (ARRAY(
    SELECT o.key_id FROM api_keys o
    WHERE least(o.revoked_at, o.expires_at)
        < coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $2::bigint
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
))

-- Deletes a bounded number of old idempotency keys.
-- Index: idempotency_keys_age.
DELETE FROM idempotency_keys k
WHERE k.ctid = ANY (ARRAY(
    SELECT o.ctid FROM idempotency_keys o
    WHERE o.created_at < (
        SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            - $2::bigint
    )
    ORDER BY o.created_at
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
))

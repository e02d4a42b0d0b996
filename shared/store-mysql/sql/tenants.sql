-- What MySQL says differently about tenants.

-- name: tenants/lock
-- Nobody else creates, renames or deletes a tenant until the transaction ends.
SELECT tenant FROM tenants WHERE tenant = 1 FOR UPDATE;

-- name: tenants/lock_one
-- Nobody else takes places of the tenant $1 until the transaction ends.
SELECT tenant FROM tenants WHERE tenant = $1 FOR UPDATE;

-- name: keys/expire
-- Removes API keys that were revoked or have expired before $1, at most $2. There are few, and they are all read.
DELETE FROM api_keys
WHERE revoked_at < $1 OR expires_at < $1
ORDER BY key_id
LIMIT $2;

-- name: tenants/usage
-- What the sends of the tenant $1 from $2 until $3 cost, and vectors that none of them pays for, by the primary
-- keys.
SELECT
    (SELECT count(*) FROM sends s
     WHERE s.tenant = $1 AND s.send_id >= $2 AND s.send_id < $3) AS sends,
    count(*) AS calls,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.input_tokens')), 0) AS SIGNED) AS input_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.output_tokens')), 0) AS SIGNED) AS output_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.cache_read_tokens')), 0) AS SIGNED) AS cache_read_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.cache_write_tokens')), 0) AS SIGNED) AS cache_write_tokens,
    CAST(coalesce(sum(JSON_VALUE(r."usage", '$.reasoning_tokens')), 0) AS SIGNED) AS reasoning_tokens,
    CAST(sum(JSON_VALUE(r."usage", '$.cost_usd')) AS DOUBLE) AS cost_usd,
    coalesce(max(JSON_VALUE(r."usage", '$.estimated') IN ('true', '1')), 0) AS estimated
FROM (
    SELECT u."usage" FROM usage_rows u
    WHERE u.tenant = $1 AND u.send_id >= $2 AND u.send_id < $3
    UNION ALL
    SELECT m."usage" FROM memory_usage m
    WHERE m.tenant = $1 AND m.call_id >= $2 AND m.call_id < $3
) r;

-- name: tenants/bytes
-- Bytes of the blobs of the tenant $1 that are there, by the primary key.
SELECT CAST(coalesce(sum(bytes), 0) AS SIGNED) AS bytes FROM blobs WHERE tenant = $1 AND state = 1;

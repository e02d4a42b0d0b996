-- What the sends of a tenant from $2 until $3 cost, and the vectors that none of them pays for.
-- Indexes: sends_pkey, the primary keys of usage_rows and memory_usage.
SELECT
    (
        SELECT count(*) FROM sends s
        WHERE s.tenant = $1::integer AND s.send_id >= $2::uuid AND s.send_id < $3::uuid
    ) AS sends,
    count(*) AS calls,
    coalesce(sum((u.usage ->> 'input_tokens')::bigint), 0)::bigint AS input_tokens,
    coalesce(sum((u.usage ->> 'output_tokens')::bigint), 0)::bigint AS output_tokens,
    coalesce(sum((u.usage ->> 'cache_read_tokens')::bigint), 0)::bigint AS cache_read_tokens,
    coalesce(sum((u.usage ->> 'cache_write_tokens')::bigint), 0)::bigint AS cache_write_tokens,
    coalesce(sum((u.usage ->> 'reasoning_tokens')::bigint), 0)::bigint AS reasoning_tokens,
    sum((u.usage ->> 'cost_usd')::double precision) AS cost_usd,
    coalesce(bool_or((u.usage ->> 'estimated')::boolean), FALSE) AS estimated
FROM (
    SELECT r.usage::jsonb AS usage
    FROM usage_rows r
    WHERE r.tenant = $1::integer AND r.send_id >= $2::uuid AND r.send_id < $3::uuid
    UNION ALL
    SELECT m.usage::jsonb
    FROM memory_usage m
    WHERE m.tenant = $1::integer AND m.call_id >= $2::uuid AND m.call_id < $3::uuid
) u

-- What the sends of the tenant $1 from $2 until $3 cost, and vectors that none of them pays for, by the primary
-- keys.
SELECT
    (SELECT count(*) FROM sends s
     WHERE s.tenant = $1 AND s.send_id >= $2 AND s.send_id < $3) AS sends,
    count(*) AS calls,
    coalesce(sum(json_extract(r.usage, '$.input_tokens')), 0) AS input_tokens,
    coalesce(sum(json_extract(r.usage, '$.output_tokens')), 0) AS output_tokens,
    coalesce(sum(json_extract(r.usage, '$.cache_read_tokens')), 0) AS cache_read_tokens,
    coalesce(sum(json_extract(r.usage, '$.cache_write_tokens')), 0) AS cache_write_tokens,
    coalesce(sum(json_extract(r.usage, '$.reasoning_tokens')), 0) AS reasoning_tokens,
    CAST(sum(json_extract(r.usage, '$.cost_usd')) AS REAL) AS cost_usd,
    coalesce(max(json_extract(r.usage, '$.estimated')), 0) AS estimated
FROM (
    SELECT u."usage" FROM usage_rows u
    WHERE u.tenant = $1 AND u.send_id >= $2 AND u.send_id < $3
    UNION ALL
    SELECT m."usage" FROM memory_usage m
    WHERE m.tenant = $1 AND m.call_id >= $2 AND m.call_id < $3
) r;

-- What the sends of the tenant $1 from $2 until $3 cost, and the vectors that none of them pays
-- for, by the primary keys.
SELECT
    (SELECT count(*) FROM sends s
     WHERE s.tenant = $1 AND s.send_id >= $2 AND s.send_id < $3) AS sends,
    count(*) AS calls,
    CAST(coalesce(sum(r."usage" ->> 'input_tokens'), 0) AS INTEGER) AS input_tokens,
    CAST(coalesce(sum(r."usage" ->> 'output_tokens'), 0) AS INTEGER) AS output_tokens,
    CAST(coalesce(sum(r."usage" ->> 'cache_read_tokens'), 0) AS INTEGER) AS cache_read_tokens,
    CAST(coalesce(sum(r."usage" ->> 'cache_write_tokens'), 0) AS INTEGER) AS cache_write_tokens,
    CAST(coalesce(sum(r."usage" ->> 'reasoning_tokens'), 0) AS INTEGER) AS reasoning_tokens,
    CAST(sum(r."usage" ->> 'cost_usd') AS REAL) AS cost_usd,
    coalesce(max(CAST(r."usage" ->> 'estimated' AS TEXT) IN ('true', '1')), 0) AS estimated
FROM (
    SELECT u."usage" FROM usage_rows u
    WHERE u.tenant = $1 AND u.send_id >= $2 AND u.send_id < $3
    UNION ALL
    SELECT m."usage" FROM memory_usage m
    WHERE m.tenant = $1 AND m.call_id >= $2 AND m.call_id < $3
) r;

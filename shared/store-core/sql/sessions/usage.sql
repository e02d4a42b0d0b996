-- What the model calls of the session $2 and of those below it cost, by model and purpose, with a
-- row without a model for sessions without any. No row if the session does not exist.
WITH RECURSIVE tree (session_id, own) AS (
    SELECT session_id, 1 FROM sessions WHERE tenant = $1 AND session_id = $2
    UNION ALL
    SELECT s.session_id, 0
    FROM tree t
    JOIN sessions s ON s.tenant = $1 AND s.parent_session = t.session_id
)
SELECT
    (SELECT count(*) FROM tree) AS sessions, t.own, r.model, r.purpose, count(r.model) AS calls,
    CAST(coalesce(sum(r."usage" ->> 'input_tokens'), 0) AS INTEGER) AS input_tokens,
    CAST(coalesce(sum(r."usage" ->> 'output_tokens'), 0) AS INTEGER) AS output_tokens,
    CAST(coalesce(sum(r."usage" ->> 'cache_read_tokens'), 0) AS INTEGER) AS cache_read_tokens,
    CAST(coalesce(sum(r."usage" ->> 'cache_write_tokens'), 0) AS INTEGER) AS cache_write_tokens,
    CAST(coalesce(sum(r."usage" ->> 'reasoning_tokens'), 0) AS INTEGER) AS reasoning_tokens,
    CAST(sum(r."usage" ->> 'cost_usd') AS REAL) AS cost_usd,
    coalesce(max(CAST(r."usage" ->> 'estimated' AS TEXT) IN ('true', '1')), 0) AS estimated
FROM tree t
LEFT JOIN sends d ON d.tenant = $1 AND d.session_id = t.session_id
LEFT JOIN usage_rows r ON r.tenant = d.tenant AND r.send_id = d.send_id
GROUP BY t.own, r.model, r.purpose
ORDER BY t.own DESC, r.model, r.purpose;

-- What the model calls of a session and of those below it cost, by model and purpose, with a row
-- without a model for sessions without any. No row if the session does not exist.
-- OFFSET 0 makes the planner look rows up session by session: a plan made for few rows would hash
-- the whole tenant instead.
-- Indexes: the primary key of sessions, sessions_children, sends_session, the primary key of usage_rows.
WITH RECURSIVE tree (session_id, own) AS (
    SELECT s.session_id, TRUE
    FROM sessions s
    WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
    UNION ALL
    SELECT s.session_id, FALSE
    FROM tree t
    CROSS JOIN LATERAL (
        SELECT c.session_id
        FROM sessions c
        WHERE c.tenant = $1::integer AND c.parent_session = t.session_id
        OFFSET 0
    ) s
)
SELECT
    (SELECT count(*) FROM tree) AS sessions, t.own, u.model, u.purpose, count(u.model) AS calls,
    coalesce(sum((u.usage ->> 'input_tokens')::bigint), 0)::bigint AS input_tokens,
    coalesce(sum((u.usage ->> 'output_tokens')::bigint), 0)::bigint AS output_tokens,
    coalesce(sum((u.usage ->> 'cache_read_tokens')::bigint), 0)::bigint AS cache_read_tokens,
    coalesce(sum((u.usage ->> 'cache_write_tokens')::bigint), 0)::bigint AS cache_write_tokens,
    coalesce(sum((u.usage ->> 'reasoning_tokens')::bigint), 0)::bigint AS reasoning_tokens,
    sum((u.usage ->> 'cost_usd')::double precision) AS cost_usd,
    coalesce(bool_or((u.usage ->> 'estimated')::boolean), FALSE) AS estimated
FROM tree t
LEFT JOIN LATERAL (
    SELECT r.model, r.purpose, r.usage::jsonb AS usage
    FROM sends d
    JOIN usage_rows r ON r.tenant = d.tenant AND r.send_id = d.send_id
    WHERE d.tenant = $1::integer AND d.session_id = t.session_id
    OFFSET 0
) u ON TRUE
GROUP BY t.own, u.model, u.purpose
ORDER BY t.own DESC, u.model COLLATE "C", u.purpose COLLATE "C" NULLS FIRST

-- The steps of a send close its rounds in order from the first, each once, as many as the send
-- counts.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
closed AS MATERIALIZED (
    SELECT
        t.tenant, t.session_id, t.send_id, t.n,
        (t.refs::json -> 'round' ->> 'index')::bigint AS index,
        row_number() OVER (
            PARTITION BY t.tenant, t.session_id, t.send_id ORDER BY t.n
        ) - 1 AS place
    FROM steps t
    WHERE t.refs LIKE '%"round"%' AND t.refs::json -> 'round' ->> 'index' IS NOT NULL
),
counted AS MATERIALIZED (
    SELECT
        c.tenant, c.session_id, c.send_id, count(*) AS rounds, bool_and(c.index = c.place) AS ordered
    FROM closed c
    GROUP BY c.tenant, c.session_id, c.send_id
)
SELECT json_build_object(
    'session', s.session_id, 'send', s.send_id, 'rounds', s.rounds, 'closed', coalesce(c.rounds, 0)
)::text AS row
FROM sends s
LEFT JOIN counted c
    ON c.tenant = s.tenant AND c.session_id = s.session_id AND c.send_id = s.send_id
WHERE s.rounds <> coalesce(c.rounds, 0) OR NOT coalesce(c.ordered, TRUE)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT (SELECT b.rows_max FROM bound b)

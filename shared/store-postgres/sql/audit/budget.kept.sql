-- The rounds of a send, what it used before its last answer and what it reserves are within its
-- budget, and a completed send reserves nothing for a child that reported to it, unless others
-- still work below that child. Sends that a hook allowed to exceed their budget are left out.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
capped AS MATERIALIZED (
    SELECT
        s.tenant, s.session_id, s.send_id, s.rounds, s.usage, s.options::json -> 'budget' AS budget
    FROM sends s
    WHERE s.options::json -> 'budget' IS NOT NULL
      AND coalesce(
          (s.usage::json -> 'shown' -> 'sent_back' ->> 'unpriced_before')::bigint, 0
      ) = 0
),
held AS MATERIALIZED (
    SELECT
        s.tenant, s.session_id, s.send_id, s.status, h.key AS call_id,
        (h.value ->> 'tokens')::bigint AS tokens, (h.value ->> 'rounds')::bigint AS rounds,
        (h.value ->> 'nano_usd')::bigint AS nano_usd
    FROM sends s
    CROSS JOIN LATERAL json_each(s.usage::json -> 'held') AS h
    WHERE s.usage LIKE '%"held"%'
),
aside AS MATERIALIZED (
    SELECT h.tenant, h.send_id, sum(h.tokens) AS tokens, sum(h.rounds) AS rounds
    FROM held h
    GROUP BY h.tenant, h.send_id
),
answers AS MATERIALIZED (
    SELECT
        u.tenant, u.send_id,
        (u.usage::json ->> 'input_tokens')::bigint + (u.usage::json ->> 'output_tokens')::bigint
            AS tokens,
        row_number() OVER (
            PARTITION BY u.tenant, u.send_id ORDER BY u.round DESC, u.attempt DESC
        ) AS from_last
    FROM usage_rows u
    JOIN capped c ON c.tenant = u.tenant AND c.send_id = u.send_id
    WHERE u.round <> -1
),
before AS MATERIALIZED (
    SELECT a.tenant, a.send_id, sum(a.tokens) AS tokens
    FROM answers a WHERE a.from_last > 1
    GROUP BY a.tenant, a.send_id
)
SELECT v.row FROM (
    SELECT
        s.tenant, s.session_id, s.send_id,
        json_build_object(
            'session', s.session_id, 'send', s.send_id, 'budget', s.budget, 'rounds',
            s.rounds + coalesce(u.rounds, 0), 'tokens', b.tokens, 'held', u.tokens
        )::text AS row
    FROM capped s
    LEFT JOIN aside u ON u.tenant = s.tenant AND u.send_id = s.send_id
    LEFT JOIN before b ON b.tenant = s.tenant AND b.send_id = s.send_id
    WHERE s.rounds + coalesce(u.rounds, 0) > (s.budget ->> 'rounds')::bigint
       OR greatest(u.tokens, b.tokens) > (s.budget ->> 'tokens')::bigint
    UNION ALL
    SELECT
        h.tenant, h.session_id, h.send_id,
        json_build_object(
            'session', h.session_id, 'send', h.send_id, 'call', h.call_id, 'held', h.tokens
        )::text
    FROM held h
    JOIN tool_calls c
        ON c.tenant = h.tenant AND c.call_id = h.call_id AND c.session_id = h.session_id
    WHERE h.status = 'completed' AND (h.tokens > 0 OR h.nano_usd > 0)
      AND c.name = 'spawn_agent' AND c.result IS NOT NULL
      AND c.result::json -> 'value' ->> 'status' IN ('completed', 'failed')
      AND c.result::json -> 'value' -> 'kept' IS NULL
) v
ORDER BY v.tenant, v.session_id, v.send_id
LIMIT (SELECT b.rows_max FROM bound b)

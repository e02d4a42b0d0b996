-- Sends that took more rounds, used more before their last answer, or reserved more than their
-- budget allows; and completed sends that still reserve something for a child that reported to
-- them, unless others still work below that child. Sends that a hook allowed to exceed their budget
-- are left out.
WITH capped AS MATERIALIZED (
    SELECT tenant, session_id, send_id, rounds, options -> 'budget' AS budget
    FROM sends
    WHERE options ->> 'budget' IS NOT NULL
      AND coalesce(usage ->> '$.shown.sent_back.unpriced_before', 0) = 0
), held AS MATERIALIZED (
    SELECT s.tenant, s.session_id, s.send_id, s.status, h.key AS call_id,
           h.value ->> 'tokens' AS tokens, h.value ->> 'rounds' AS rounds,
           h.value ->> 'nano_usd' AS nano_usd
    FROM sends s, json_each(s.usage, '$.held') h
    WHERE s.usage ->> 'held' IS NOT NULL
), aside AS MATERIALIZED (
    SELECT tenant, send_id, sum(tokens) AS tokens, sum(rounds) AS rounds
    FROM held
    GROUP BY tenant, send_id
), answers AS MATERIALIZED (
    SELECT u.tenant, u.send_id,
           (u.usage ->> 'input_tokens') + (u.usage ->> 'output_tokens') AS tokens,
           row_number() OVER (PARTITION BY u.tenant, u.send_id
                              ORDER BY u.round DESC, u.attempt DESC) AS from_last
    FROM usage_rows u
    JOIN capped c ON c.send_id = u.send_id AND c.tenant = u.tenant
    WHERE u.round <> -1
), before AS MATERIALIZED (
    SELECT tenant, send_id, sum(tokens) AS tokens
    FROM answers
    WHERE from_last > 1
    GROUP BY tenant, send_id
)
SELECT row FROM (
    SELECT s.tenant, s.session_id, s.send_id,
           json_object('session', 'ses_' || lower(hex(s.session_id)),
                       'send', 'snd_' || lower(hex(s.send_id)), 'budget', json(s.budget),
                       'rounds', s.rounds + coalesce(u.rounds, 0), 'tokens', b.tokens,
                       'held', u.tokens) AS row
    FROM capped s
    LEFT JOIN aside u ON u.send_id = s.send_id AND u.tenant = s.tenant
    LEFT JOIN before b ON b.send_id = s.send_id AND b.tenant = s.tenant
    WHERE s.rounds + coalesce(u.rounds, 0) > s.budget ->> 'rounds'
       OR u.tokens > s.budget ->> 'tokens' OR b.tokens > s.budget ->> 'tokens'
    UNION ALL
    SELECT h.tenant, h.session_id, h.send_id,
           json_object('session', 'ses_' || lower(hex(h.session_id)),
                       'send', 'snd_' || lower(hex(h.send_id)), 'call', h.call_id,
                       'held', h.tokens)
    FROM held h
    JOIN tool_calls c ON c.tenant = h.tenant AND c.call_id = h.call_id
                     AND c.session_id = h.session_id
    WHERE h.status = 'completed' AND (h.tokens > 0 OR h.nano_usd > 0)
      AND c.name = 'spawn_agent'
      AND c.result ->> '$.value.status' IN ('completed', 'failed')
      AND c.result ->> '$.value.kept' IS NULL
)
ORDER BY tenant, session_id, send_id
LIMIT $1;

-- Sends whose steps do not close their rounds in order from the first, each once, as many as the
-- send counts.
WITH closed AS MATERIALIZED (
    SELECT tenant, session_id, send_id, refs ->> '$.round.index' AS number,
           row_number() OVER (PARTITION BY tenant, session_id, send_id ORDER BY n) - 1 AS place
    FROM steps
    WHERE refs ->> '$.round.index' IS NOT NULL
), counted AS MATERIALIZED (
    SELECT tenant, session_id, send_id, count(*) AS rounds, min(number = place) AS ordered
    FROM closed
    GROUP BY tenant, session_id, send_id
)
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)), 'rounds', s.rounds,
                   'closed', coalesce(c.rounds, 0))
FROM sends s
LEFT JOIN counted c ON c.send_id = s.send_id AND c.session_id = s.session_id
                   AND c.tenant = s.tenant
WHERE s.rounds <> coalesce(c.rounds, 0) OR NOT coalesce(c.ordered, 1)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;

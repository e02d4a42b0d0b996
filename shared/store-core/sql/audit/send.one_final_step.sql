-- Sends whose number of final steps does not match their status.
WITH final_steps AS MATERIALIZED (
    SELECT tenant, session_id, send_id, count(*) AS steps
    FROM steps WHERE kind = 'finished'
    GROUP BY tenant, session_id, send_id
)
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)),
                   'status', s.status, 'final_steps', coalesce(f.steps, 0))
FROM sends s
LEFT JOIN final_steps f ON f.tenant = s.tenant AND f.session_id = s.session_id AND f.send_id = s.send_id
WHERE coalesce(f.steps, 0) <> (s.finished_at IS NOT NULL)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;

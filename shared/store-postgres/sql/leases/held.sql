-- Reads back the grants with these tokens and the sends that run under them, after a commit whose
-- response was lost. No row for a token that holds nothing.
-- Index: session_hot_pkey, sends_open, agents_pkey, steps_pkey, seat_limits_pkey.
SELECT
    i.ord, {s.send}, a.spec,
    (
        SELECT t.refs::json ->> 'reason' FROM steps t
        WHERE t.tenant = h.tenant AND t.session_id = h.session_id AND t.n >= s.first_step
          AND t.send_id = s.send_id AND t.kind = 'resumed' AND t.epoch = h.epoch
        ORDER BY t.n DESC
        LIMIT 1
    ) AS resumed,
    h.next_seq, h.pending, h.signals, h.context_version, h.epoch, h.spent, 'granted' AS state,
    EXISTS (SELECT FROM seat_limits l WHERE l.tenant = h.tenant) AS seated
FROM unnest($1::integer[], $2::uuid[], $3::uuid[])
    WITH ORDINALITY AS i (tenant, session_id, token, ord)
JOIN session_hot h
    ON h.tenant = i.tenant AND h.session_id = i.session_id AND h.token = i.token
CROSS JOIN LATERAL (
    SELECT o.send_id FROM sends o
    WHERE o.tenant = h.tenant AND o.session_id = h.session_id
      AND o.finished_at IS NULL AND o.position IS NOT NULL
    ORDER BY o.position
    LIMIT 1
) n
JOIN sends s
    ON s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = n.send_id
    AND s.status = 'running'
JOIN agents a
    ON a.tenant = s.tenant AND a.session_id = s.session_id AND a.version = s.agent_version

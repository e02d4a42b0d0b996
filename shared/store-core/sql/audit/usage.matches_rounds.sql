-- Assistant messages without a usage row of their round; and usage rows without a send, or of a
-- round that their send did not reach. Copied messages, of epoch 0, were paid for elsewhere; the
-- usage of old sends was removed with them.
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)), 'round', round, 'seq', seq)
FROM (
    SELECT m.tenant, m.session_id, m.send_id, m.round, m.seq
    FROM messages m
    WHERE m.role = 'assistant' AND m.epoch > 0
      AND NOT EXISTS (SELECT 1 FROM usage_rows u
                      WHERE u.tenant = m.tenant AND u.send_id = m.send_id AND u.round = m.round)
      AND EXISTS (SELECT 1 FROM sessions c
                  WHERE c.tenant = m.tenant AND c.session_id = m.session_id)
      AND EXISTS (SELECT 1 FROM sends s WHERE s.tenant = m.tenant AND s.send_id = m.send_id)
    UNION ALL
    SELECT u.tenant, u.session_id, u.send_id, u.round, NULL
    FROM usage_rows u
    LEFT JOIN sends s ON s.tenant = u.tenant AND s.send_id = u.send_id
                     AND s.session_id = u.session_id
    WHERE s.send_id IS NULL OR u.round > s.rounds
) found
ORDER BY tenant, session_id, send_id, round
LIMIT $1;

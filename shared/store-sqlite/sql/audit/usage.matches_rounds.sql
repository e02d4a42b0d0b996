-- Assistant messages whose round nobody paid for. Copied messages, of epoch 0, were paid elsewhere;
-- what old ones used went with their sends.
SELECT json_object('session', 'ses_' || lower(hex(m.session_id)), 'seq', m.seq,
                   'send', 'snd_' || lower(hex(m.send_id)), 'round', m.round)
FROM messages m
WHERE m.role = 'assistant' AND m.epoch > 0
  AND NOT EXISTS (SELECT 1 FROM usage_rows u
                  WHERE u.tenant = m.tenant AND u.send_id = m.send_id AND u.round = m.round)
  AND EXISTS (SELECT 1 FROM sessions c WHERE c.tenant = m.tenant AND c.session_id = m.session_id)
  AND EXISTS (SELECT 1 FROM sends s WHERE s.tenant = m.tenant AND s.send_id = m.send_id)
ORDER BY m.tenant, m.session_id, m.seq
LIMIT $1;

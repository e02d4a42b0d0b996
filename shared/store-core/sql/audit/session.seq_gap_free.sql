-- Transcripts that are not numbered without gaps from their first_seq up to, but not including,
-- next_seq. Those of deleted sessions are not checked.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)),
                   'messages', count(m.seq), 'first_seq', coalesce(c.first_seq, 1),
                   'next_seq', h.next_seq)
FROM session_hot h
LEFT JOIN sessions c ON c.tenant = h.tenant AND c.session_id = h.session_id
LEFT JOIN messages m ON m.tenant = h.tenant AND m.session_id = h.session_id
WHERE h.lifecycle <> 2
GROUP BY h.tenant, h.session_id
HAVING count(m.seq) <> max(h.next_seq) - coalesce(max(c.first_seq), 1)
    OR coalesce(min(m.seq), coalesce(max(c.first_seq), 1)) <> coalesce(max(c.first_seq), 1)
    OR coalesce(max(m.seq), max(h.next_seq) - 1) <> max(h.next_seq) - 1
ORDER BY h.tenant, h.session_id
LIMIT $1;

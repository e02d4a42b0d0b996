-- Where a transcript begins, and where what the open send wrote does.
SELECT c.first_seq,
       (SELECT min(m.seq) FROM messages m
        JOIN sends s ON s.tenant = m.tenant AND s.send_id = m.send_id
        WHERE m.tenant = c.tenant AND m.session_id = c.session_id
          AND s.session_id = c.session_id AND s.status IN ('running', 'waiting'))
FROM sessions c
WHERE c.tenant = $1 AND c.session_id = $2;

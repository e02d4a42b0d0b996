-- Makes the inputs of sends messages, numbered from locked hot rows.
INSERT INTO messages
    (tenant, session_id, seq, send_id, role, content, round, epoch, created_at)
SELECT s.tenant, s.session_id, i.seq, s.send_id, 'user', s.input, 0, i.epoch, $1::bigint
FROM unnest($2::integer[], $3::uuid[], $4::bigint[], $5::bigint[])
    AS i (tenant, send_id, seq, epoch)
JOIN sends s ON s.tenant = i.tenant AND s.send_id = i.send_id

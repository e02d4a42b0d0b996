-- Reads what became of writes under leases after a commit whose answer was lost: the last step of
-- the send under that grant, and whether the grant still holds.
-- Index: session_hot_pkey, steps_pkey.
SELECT
    i.ord, coalesce(h.token = i.token, FALSE) AS held, h.next_seq, h.pending, h.signals, h.active,
    h.ready_since, h.pool, h.priority, t.n, t.kind, t.at, t.refs
FROM unnest($1::integer[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[])
    WITH ORDINALITY AS i (tenant, session_id, token, send_id, epoch, ord)
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
LEFT JOIN LATERAL (
    SELECT s.n, s.kind, s.at, s.refs FROM steps s
    WHERE s.tenant = i.tenant AND s.session_id = i.session_id
      AND s.send_id = i.send_id AND s.epoch = i.epoch AND s.kind <> 'resumed'
    ORDER BY s.n DESC
    LIMIT 1
) t ON TRUE

-- Reads what became of writes under leases after a commit whose response was lost: the last step of
-- the send under that grant, whether the grant still holds, how many writes it has seen, and the
-- signals that stand for pending inbox items, as the lost response may have been the one to report
-- them.
-- Index: session_hot_pkey, steps_pkey, inbox_pending.
SELECT
    i.ord, coalesce(h.token = i.token, FALSE) AS held, h.writes, h.next_seq, h.pending, h.signals,
    h.context_version,
    (
        SELECT coalesce(bit_or(CASE n.mode WHEN 'interrupt' THEN 6 ELSE 2 END), 0)
        FROM inbox n
        WHERE n.tenant = i.tenant AND n.session_id = i.session_id AND n.fate = 'pending'
    ) AS for_items,
    h.ready_since, h.pool, h.priority, t.n, t.kind, t.at, t.refs
FROM unnest($1::integer[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::uuid[])
    WITH ORDINALITY AS i (tenant, session_id, token, send_id, epoch, boot, ord)
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
LEFT JOIN LATERAL (
    SELECT s.n, s.kind, s.at, s.refs FROM steps s
    WHERE s.tenant = i.tenant AND s.session_id = i.session_id
      AND s.send_id = i.send_id AND s.epoch = i.epoch AND s.boot = i.boot AND s.kind <> 'resumed'
    ORDER BY s.n DESC
    LIMIT 1
) t ON TRUE

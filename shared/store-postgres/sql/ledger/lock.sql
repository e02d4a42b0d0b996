-- Locks hot rows in key order, for transactions that read and write several rows of a session.
-- Index: session_hot_pkey.
SELECT
    h.tenant, h.session_id, h.owner_boot, h.token, h.epoch, h.next_seq, h.next_position,
    h.next_step, h.pending, h.active, h.signals, h.ready_since, h.lifecycle, h.pool, h.priority,
    h.writes
FROM (
    SELECT DISTINCT i.tenant, i.session_id
    FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
) w
JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
ORDER BY h.tenant, h.session_id
FOR UPDATE OF h

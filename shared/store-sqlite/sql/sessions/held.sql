-- The fence: the hot row, if its token and owner are the lease's and the send runs in it.
SELECT h.tenant, h.session_id, h.owner_boot, h.token, h.epoch, h.next_seq, h.next_position,
       h.next_step, h.pending, h.signals, h.ready_since, h.lifecycle, h.pool, h.priority,
       h.spent,
       s.deadline_at
FROM session_hot h
JOIN sends s ON s.tenant = h.tenant AND s.send_id = $5
            AND s.session_id = h.session_id AND s.status = 'running'
WHERE h.tenant = $1 AND h.session_id = $2 AND h.token = $3 AND h.owner_boot = $4;

-- Reads every hot row in order.
SELECT
    h.tenant, h.session_id, h.owner_boot, h.token, h.epoch, h.next_seq, h.next_position,
    h.next_step, h.pending, h.active, h.signals, h.ready_since, h.lifecycle, h.pool, h.priority,
    h.writes,
    coalesce(s.first_seq, 1) AS first_seq, s.agent_version, s.parent_session, s.parent_call,
    s.root_session, s.depth, h.spent, coalesce(r.steps, 0) AS retired_steps,
    e.session_id IS NOT NULL AS erasing, h.context_version
FROM session_hot h
LEFT JOIN retired_steps r ON r.tenant = h.tenant AND r.session_id = h.session_id
LEFT JOIN erasures e ON e.tenant = h.tenant AND e.session_id = h.session_id
LEFT JOIN sessions s ON s.tenant = h.tenant AND s.session_id = h.session_id
ORDER BY h.tenant, h.session_id

-- Every hot row, tombstones too, with what the dump shows of the cold one where there is a session.
SELECT h.tenant, h.session_id, h.owner_boot, h.token, h.epoch, h.next_seq, h.next_position,
       h.next_step, h.pending, h.signals, h.ready_since, h.lifecycle, h.pool, h.priority,
       h.spent, h.writes, h.context_version,
       coalesce(c.first_seq, 1), c.agent_version, c.parent_session, c.parent_call, c.root_session, c.depth,
       coalesce(r.steps, 0),
       EXISTS (SELECT 1 FROM erasures e
               WHERE e.tenant = h.tenant AND e.session_id = h.session_id)
FROM session_hot h
LEFT JOIN retired_steps r ON r.tenant = h.tenant AND r.session_id = h.session_id
LEFT JOIN sessions c ON c.tenant = h.tenant AND c.session_id = h.session_id
ORDER BY h.tenant, h.session_id;

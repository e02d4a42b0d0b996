-- Every hot row, including tombstones, with the dumped columns of the cold row if the session
-- exists.
SELECT {h.hot},
       coalesce(c.first_seq, 1) AS first_seq, c.agent_version, c.parent_session, c.parent_call, c.root_session, c.depth,
       coalesce(r.steps, 0) AS retired_steps,
       EXISTS (SELECT 1 FROM erasures e
               WHERE e.tenant = h.tenant AND e.session_id = h.session_id) AS erasing
FROM session_hot h
LEFT JOIN retired_steps r ON r.tenant = h.tenant AND r.session_id = h.session_id
LEFT JOIN sessions c ON c.tenant = h.tenant AND c.session_id = h.session_id
ORDER BY h.tenant, h.session_id;

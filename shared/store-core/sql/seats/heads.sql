-- What the sessions of the tenant $1 that have a seat or wait for one run or would run, if it may
-- be the agent $2: the session's current agent has that name, or the send has an agent of its own
-- or was pinned to an earlier one. Those for which this is already recorded are left out. By the
-- primary keys and sends_open.
SELECT t.session_id, s.send_id, s.options, a.version, a.spec
FROM seats t
JOIN sessions c ON c.tenant = t.tenant AND c.session_id = t.session_id
JOIN sends s ON s.tenant = t.tenant AND s.session_id = t.session_id
            AND s.finished_at IS NULL AND s.position IS NOT NULL
            AND s.position = (SELECT min(m.position) FROM sends m
                              WHERE m.tenant = t.tenant AND m.session_id = t.session_id
                                AND m.finished_at IS NULL AND m.position IS NOT NULL)
JOIN agents a ON a.tenant = t.tenant AND a.session_id = t.session_id
             AND a.version = coalesce(s.agent_version, c.agent_version)
WHERE t.tenant = $1
  AND (c.agent_name = $2 OR s.agent_version <> c.agent_version OR s.options LIKE '%"agent":%')
  AND (t.agent <> $2 OR coalesce(t.send_id <> s.send_id, 1 = 1) OR coalesce(t.agent_version <> a.version, 1 = 1));

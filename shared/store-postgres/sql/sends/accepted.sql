-- Reads back which sends of a group are stored, after a commit whose response was lost. The caller
-- rings for every ready session: one ring too many is harmless. A session that was granted with a
-- send has the send's id as its token, and nothing was written under that grant yet.
-- Index: sends_pkey, session_hot_pkey.
SELECT i.ord, s.position, s.first_step, s.created_at, h.ready_since, h.pool, h.priority,
    CASE WHEN h.token = s.send_id AND h.writes = 0 THEN h.epoch END AS epoch,
    h.next_seq, h.signals, h.context_version, h.spent, s.agent_version
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, send_id, ord)
JOIN sends s ON s.tenant = i.tenant AND s.send_id = i.send_id
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id

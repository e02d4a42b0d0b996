-- Reads a session with its current agent; no row if it is unknown or deleted.
-- Index: sessions_pkey, agents_pkey, session_hot_pkey, boots_pkey.
SELECT
    s.tenant, s.session_id, a.spec, s.agent_version, s.metadata::text, h.next_seq - s.first_seq AS messages, s.first_seq,
    s.parent_session, s.parent_call, s.root_session, s.depth, s.created_at, s.updated_at,
    CASE
        WHEN h.lifecycle = 1 THEN 'closed'
        WHEN b.boot_id IS NOT NULL THEN 'running'
        WHEN h.ready_since IS NOT NULL THEN 'queued'
        WHEN h.active = 2 THEN 'waiting'
        ELSE 'idle'
    END AS status
FROM sessions s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
JOIN agents a
    ON a.tenant = s.tenant AND a.session_id = s.session_id AND a.version = s.agent_version
LEFT JOIN boots b
    ON b.boot_id = h.owner_boot AND b.dead_at IS NULL
    AND b.lease_until
        >= coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE s.tenant = $1::integer AND s.session_id = $2::uuid

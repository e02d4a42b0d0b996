-- Reads a page of a tenant's sessions, newest first.
-- Index: sessions_pkey or sessions_agent backwards, or sessions_metadata; then the keys of what is joined.
SELECT
    l.tenant, l.session_id, l.spec, l.agent_version, l.metadata, l.messages, l.first_seq, l.parent_session,
    l.parent_call, l.root_session, l.depth, l.created_at, l.updated_at, l.status
FROM (
    SELECT
        s.tenant, s.session_id, a.spec, s.agent_version, s.metadata::text AS metadata,
        h.next_seq - s.first_seq AS messages, s.first_seq, s.parent_session, s.parent_call, s.root_session, s.depth,
        s.created_at, s.updated_at,
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
        AND b.lease_until >= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    WHERE s.tenant = $1::integer
      AND ($3::text IS NULL OR s.agent_name = $3::text)
      AND ($4::text IS NULL OR s.metadata @> $4::text::jsonb)
      AND ($5::uuid IS NULL OR s.session_id < $5::uuid)
) l
WHERE $2::text IS NULL OR l.status = $2::text
ORDER BY l.session_id DESC
LIMIT $6::bigint

-- Changes the cold row of a session whose hot row is locked; a new agent becomes its next version.
-- Index: sessions_pkey.
WITH changed AS (
    UPDATE sessions s SET
        agent_version = CASE
            WHEN $4::text IS NULL THEN s.agent_version
            ELSE s.agent_version + 1
        END,
        agent_name = CASE WHEN $4::text IS NULL THEN s.agent_name ELSE $5::text END,
        metadata = coalesce($6::text::jsonb, s.metadata),
        updated_at = $1::bigint
    WHERE s.tenant = $2::integer AND s.session_id = $3::uuid
    RETURNING s.tenant, s.session_id, s.agent_version
),
seen AS (
    UPDATE session_hot h SET context_version = h.context_version + 1
    WHERE h.tenant = $2::integer AND h.session_id = $3::uuid AND $4::text IS NOT NULL
)
INSERT INTO agents (tenant, session_id, version, spec)
SELECT c.tenant, c.session_id, c.agent_version, $4::text
FROM changed c WHERE $4::text IS NOT NULL

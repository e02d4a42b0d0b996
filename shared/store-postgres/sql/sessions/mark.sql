-- Makes a session whose hot row is locked inaccessible, and records that its other rows are to be
-- removed. The hot row remains as a tombstone, the sends and steps until retention removes them.
-- Index: sessions_pkey, session_names_session.
WITH gone AS (DELETE FROM sessions d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid),
nameless AS (
    DELETE FROM session_names n WHERE n.tenant = $1::integer AND n.session_id = $2::uuid
)
INSERT INTO erasures (tenant, session_id, due_at, deleted_at)
VALUES ($1::integer, $2::uuid, $3::bigint, $3::bigint)
ON CONFLICT (tenant, session_id)
DO UPDATE SET due_at = excluded.due_at, deleted_at = excluded.deleted_at

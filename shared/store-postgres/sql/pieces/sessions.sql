-- The rows of the sessions $5 to $6 of the tenant $4, under the names of the tables: the invariants
-- that follow see nothing else, and take $1 to $3.
-- Call ids begin with the id of their send.
-- Index: the primary keys; sends_session.
WITH
    session_hot AS MATERIALIZED (
        SELECT x.* FROM session_hot x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    sessions AS MATERIALIZED (
        SELECT x.* FROM sessions x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    sends AS MATERIALIZED (
        SELECT x.* FROM sends x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    messages AS MATERIALIZED (
        SELECT x.* FROM messages x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    steps AS MATERIALIZED (
        SELECT x.* FROM steps x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    inbox AS MATERIALIZED (
        SELECT x.* FROM inbox x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    folds AS MATERIALIZED (
        SELECT x.* FROM folds x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    projections AS MATERIALIZED (
        SELECT x.* FROM projections x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    retired_steps AS MATERIALIZED (
        SELECT x.* FROM retired_steps x
        WHERE x.tenant = $4::integer AND x.session_id BETWEEN $5::uuid AND $6::uuid
    ),
    tool_calls AS MATERIALIZED (
        SELECT c.*
        FROM sends s
        CROSS JOIN LATERAL (
            SELECT x.* FROM tool_calls x
            WHERE x.tenant = s.tenant
              AND x.call_id >= 'call_' || replace(s.send_id::text, '-', '') || '_'
              AND x.call_id < 'call_' || replace(s.send_id::text, '-', '') || '`'
            -- Keeps the planner from reading the calls of all sends at once.
            OFFSET 0
        ) c
    ),
    usage_rows AS MATERIALIZED (
        SELECT u.*
        FROM sends s
        CROSS JOIN LATERAL (
            SELECT x.* FROM usage_rows x
            WHERE x.tenant = s.tenant AND x.send_id = s.send_id
            OFFSET 0
        ) u
    )
SELECT
    '' AS invariant,
    json_build_object(
        'count', count(*), 'at', $1::bigint, 'takeover_ms', $2::bigint, 'rows_max', $3::bigint
    )::text AS row
FROM session_hot

-- Removes what is deleted with a session whose hot row is locked. The hot row stays as a tombstone,
-- the sends and the steps until retention. The ids of calls begin with their send.
-- Index: the primary keys; sends_session for the calls and the usage.
WITH
    a AS (DELETE FROM agents d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid),
    m AS (DELETE FROM messages d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid),
    n AS (DELETE FROM inbox d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid),
    c AS (
        DELETE FROM tool_calls d
        WHERE d.ctid = ANY (ARRAY(
            SELECT l.ctid
            FROM sends s
            CROSS JOIN LATERAL (
                SELECT x.ctid FROM tool_calls x
                WHERE x.tenant = $1::integer
                  AND x.call_id >= 'call_' || replace(s.send_id::text, '-', '') || '_'
                  AND x.call_id < 'call_' || replace(s.send_id::text, '-', '') || '`'
                -- Keeps the planner from reading the calls of all sends at once.
                OFFSET 0
            ) l
            WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
        ))
    ),
    u AS (
        DELETE FROM usage_rows d
        USING sends s
        WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
          AND d.tenant = s.tenant AND d.send_id = s.send_id
    )
DELETE FROM sessions d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid

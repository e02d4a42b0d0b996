-- Removes what is deleted with a session whose hot row is locked. The hot row stays as a tombstone,
-- the sends and the steps until retention.
-- Index: the primary keys; sends_session for the usage.
WITH
    a AS (DELETE FROM agents d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid),
    m AS (DELETE FROM messages d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid),
    c AS (DELETE FROM tool_calls d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid),
    u AS (
        DELETE FROM usage_rows d
        USING sends s
        WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
          AND d.tenant = s.tenant AND d.send_id = s.send_id
    )
DELETE FROM sessions d WHERE d.tenant = $1::integer AND d.session_id = $2::uuid

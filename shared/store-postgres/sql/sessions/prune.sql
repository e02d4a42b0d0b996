-- Removes the messages before $3 of a session whose hot row is locked, the rows of the calls that
-- they answer, and the projections that begin with them.
-- Index: the primary keys.
WITH
    gone AS (
        DELETE FROM messages d
        WHERE d.tenant = $1::integer AND d.session_id = $2::uuid AND d.seq < $3::bigint
          AND d.seq >= $4::bigint
        RETURNING d.tenant, d.session_id, d.tool_call_id
    ),
    c AS (
        DELETE FROM tool_calls d
        USING gone g
        WHERE d.tenant = g.tenant AND d.call_id = g.tool_call_id AND d.session_id = g.session_id
    ),
    p AS (
        DELETE FROM projections d
        WHERE d.tenant = $1::integer AND d.session_id = $2::uuid AND d.from_seq < $3::bigint
    ),
    v AS (
        UPDATE session_hot h SET context_version = h.context_version + 1
        WHERE h.tenant = $1::integer AND h.session_id = $2::uuid
    )
UPDATE sessions SET first_seq = $3::bigint
WHERE tenant = $1::integer AND session_id = $2::uuid

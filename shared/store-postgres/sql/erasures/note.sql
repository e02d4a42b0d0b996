-- Records how far the erasure of a session has got. If nothing is left ($5) and no session is below
-- it, it is looked at once more, at $6.
-- Index: erasures_pkey, sessions_children.
UPDATE erasures e SET
    seq = coalesce($3::bigint, e.seq),
    send_id = coalesce($4::uuid, e.send_id),
    due_at = CASE
        WHEN $5::boolean AND NOT EXISTS (
            SELECT FROM sessions s
            WHERE s.tenant = $1::integer AND s.parent_session = $2::uuid
        ) THEN $6::bigint
        ELSE e.due_at
    END
WHERE e.tenant = $1::integer AND e.session_id = $2::uuid

-- Counts the undelivered items of sessions.
-- Index: inbox_pending.
SELECT
    i.tenant, i.session_id,
    (
        SELECT count(*) FROM inbox n
        WHERE n.tenant = i.tenant AND n.session_id = i.session_id AND n.fate = 'pending'
    ) AS items
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)

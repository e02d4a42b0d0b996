-- Gives leases back with their sends as they are. `ready_since` stays, so that the session keeps
-- its place among the ready ones. An item without a row in the answer had lost its lease.
-- Index: session_hot_pkey.
WITH hot AS MATERIALIZED (
    SELECT i.ord, h.tenant, h.session_id
    FROM unnest($1::integer[], $2::uuid[], $3::uuid[])
        WITH ORDINALITY AS i (tenant, session_id, token, ord)
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
)
UPDATE session_hot h SET owner_boot = NULL, token = NULL
FROM hot o
WHERE h.tenant = o.tenant AND h.session_id = o.session_id
RETURNING o.ord

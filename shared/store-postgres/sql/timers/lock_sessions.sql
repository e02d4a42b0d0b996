-- Locks the hot rows of sessions in key order, so that what is counted for them next stays true.
-- Index: session_hot_pkey.
SELECT h.tenant
FROM (
    SELECT DISTINCT i.tenant, i.session_id
    FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
) i
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
ORDER BY h.tenant, h.session_id
FOR UPDATE OF h

-- Reads back which sessions of a group exist, after a commit whose response was lost.
-- Index: sessions_pkey.
SELECT i.ord, s.created_at
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, session_id, ord)
JOIN sessions s ON s.tenant = i.tenant AND s.session_id = i.session_id

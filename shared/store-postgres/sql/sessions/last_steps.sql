-- Reads the numbers of sessions' last steps.
-- Index: session_hot_pkey.
SELECT i.ord, h.next_step - 1 AS last_step
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, session_id, ord)
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id

-- What sessions whose hot rows are locked have spent.
-- Index: session_hot_pkey.
SELECT h.tenant, h.session_id, h.spent
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, session_id)
JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id

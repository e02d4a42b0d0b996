-- Reads calls by id; no row for an unknown one.
-- Index: tool_calls_pkey, sessions_pkey.
SELECT
    i.ord, c.session_id, {c.call}
FROM unnest($1::integer[], $2::text[]) WITH ORDINALITY AS i (tenant, call_id, ord)
JOIN tool_calls c ON c.tenant = i.tenant AND c.call_id = i.call_id
-- Rows that a deleted session left behind do not count.
JOIN sessions s ON s.tenant = c.tenant AND s.session_id = c.session_id

-- Finds the sessions of sends; a send never moves.
-- Index: sends_pkey.
SELECT s.tenant, s.session_id, s.send_id
FROM unnest($1::integer[], $2::uuid[]) AS i (tenant, send_id)
JOIN sends s ON s.tenant = i.tenant AND s.send_id = i.send_id

-- Reads which sends were reported, after a commit whose response was lost.
-- Index: sends_pkey.
SELECT i.ord
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, send_id, ord)
JOIN sends s ON s.tenant = i.tenant AND s.send_id = i.send_id AND s.reported_at IS NOT NULL

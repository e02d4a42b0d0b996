-- Reads sends by id; no row for an unknown one.
-- Index: sends_pkey.
SELECT
    i.ord, {s.send}
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, send_id, ord)
JOIN sends s ON s.tenant = i.tenant AND s.send_id = i.send_id

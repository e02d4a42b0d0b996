-- Reads items by id; no row for an unknown one.
-- Index: inbox_pkey.
SELECT
    i.ord, {n.item}
FROM unnest($1::integer[], $2::uuid[], $3::text[])
    WITH ORDINALITY AS i (tenant, session_id, item_id, ord)
JOIN inbox n ON n.tenant = i.tenant AND n.session_id = i.session_id AND n.item_id = i.item_id

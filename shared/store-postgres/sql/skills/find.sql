-- The versions that skills refer to: one given by its hash, or the one of a listed name.
-- Index: the primary keys.
SELECT w.ord, v.name, v.hash, v.source, v.body, v.created_at
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w (name, hash, ord)
LEFT JOIN skills s
    ON s.tenant = $1::integer AND s.name = w.name AND s.listed AND w.hash IS NULL
JOIN skill_versions v
    ON v.tenant = $1::integer AND v.name = w.name AND v.hash = coalesce(w.hash, s.hash)

-- Deletes the extractions for a namespace, from $2 up to $3.
-- Index: extractions_namespace.
DELETE FROM extractions d
WHERE d.tenant = $1::integer AND d.namespace >= $2::text AND d.namespace < $3::text

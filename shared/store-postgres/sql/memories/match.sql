-- The words of the entries that the full-text index finds in a namespace, from $2 up to $3, by the
-- question $6, which names the namespace, too; the best $5 by the database's own order.
-- Index: memories_terms.
SELECT m.memory_id, m.words, m.updated_at
FROM memories m
WHERE m.terms @@ $6::tsquery
  AND m.tenant = $1::integer AND m.namespace >= $2::text AND m.namespace < $3::text
  AND (m.expires_at IS NULL OR m.expires_at > $4::bigint)
ORDER BY ts_rank(m.terms, $6::tsquery) DESC, m.memory_id DESC
LIMIT $5::bigint

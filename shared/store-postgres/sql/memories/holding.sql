-- For each of the queries $6, which name the namespace, too: the words of $5 entries of it, from $2
-- up to $3, that the full-text index finds, in the order in which it finds them, so that a query
-- that matches half of a namespace is neither read in full nor ranked. The sum keeps the planner
-- from using another index, with which it would read the namespace until it has found that many.
-- Index: memories_terms.
SELECT q.n AS question, h.memory_id, h.words, h.updated_at
FROM unnest($6::text[]) WITH ORDINALITY AS q (question, n)
CROSS JOIN LATERAL (
    SELECT m.memory_id, m.words, m.updated_at
    FROM memories m
    WHERE m.terms @@ q.question::tsquery
      AND m.tenant + 0 = $1::integer AND m.namespace >= $2::text AND m.namespace < $3::text
      AND (m.expires_at IS NULL OR m.expires_at > $4::bigint)
    LIMIT $5::bigint
) h

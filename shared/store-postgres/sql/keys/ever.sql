-- Whether there ever was a key. Releases without the note leave it out, so keys that are there count as well.
-- Index: none, since it is asked only until there is one.
SELECT 1 AS one FROM tenants t WHERE t.keyed_at IS NOT NULL
UNION ALL SELECT 1 FROM api_keys k
LIMIT 1

-- Whether there ever was a key. Releases without the note leave it out, so keys that are there count as well.
SELECT 1 FROM tenants WHERE keyed_at IS NOT NULL UNION ALL SELECT 1 FROM api_keys LIMIT 1;

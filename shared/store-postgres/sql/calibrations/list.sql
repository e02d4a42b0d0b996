-- The most recent calibrations, at most $1. There is one row per model, and all are read.
SELECT c.provider, c.model, c.ratio, c.counts
FROM calibrations c
ORDER BY c.updated_at DESC, c.provider, c.model
LIMIT $1::bigint

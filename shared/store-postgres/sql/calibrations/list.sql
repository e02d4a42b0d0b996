-- What was learned last, at most $1. A row for each model: all of them are read.
SELECT c.provider, c.model, c.ratio, c.counts
FROM calibrations c
ORDER BY c.updated_at DESC, c.provider, c.model
LIMIT $1::bigint

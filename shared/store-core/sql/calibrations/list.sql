-- The most recent calibrations, at most $1. There is one row per model, and all are read.
SELECT provider, model, ratio, counts
FROM calibrations
ORDER BY updated_at DESC, provider, model
LIMIT $1;

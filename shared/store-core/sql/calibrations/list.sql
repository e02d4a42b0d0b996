-- What was learned last, at most $1. A row for each model: all of them are read.
SELECT provider, model, ratio, counts
FROM calibrations
ORDER BY updated_at DESC, provider, model
LIMIT $1;

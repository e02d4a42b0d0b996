-- Merges what a worker learned into what is stored: a higher ratio applies at once, a lower one
-- moves the stored one halfway. Index: the primary key.
INSERT INTO calibrations (provider, model, ratio, counts, updated_at)
SELECT value ->> 'provider', value ->> 'model', value ->> 'ratio', value ->> 'counts', $2
FROM json_each($1)
WHERE true
ON CONFLICT (provider, model) DO UPDATE SET
    ratio = max(calibrations.ratio, excluded.ratio)
        - max(calibrations.ratio - excluded.ratio, 0) / 2,
    counts = max(calibrations.counts, excluded.counts),
    updated_at = excluded.updated_at;

-- Merges what a worker learned into what is stored: a higher ratio applies at once, a lower one
-- moves the stored one halfway. Index: the primary key.
INSERT INTO calibrations AS c (provider, model, ratio, counts, updated_at)
SELECT e.provider, e.model, e.ratio, e.counts,
       coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS e (provider, model, ratio, counts)
ON CONFLICT (provider, model) DO UPDATE SET
    ratio = greatest(c.ratio, excluded.ratio) - greatest(c.ratio - excluded.ratio, 0) / 2,
    counts = greatest(c.counts, excluded.counts),
    updated_at = excluded.updated_at

-- 1 if steps are indexed by commit time.
SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name = 'steps_at';

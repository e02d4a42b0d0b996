-- 1 when steps can be found by when they were committed.
SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name = 'steps_at';

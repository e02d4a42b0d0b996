-- 1 if migrations were ever run in this file.
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations';

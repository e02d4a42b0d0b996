-- The newest migration that ran to its end.
SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success;

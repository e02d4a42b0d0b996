-- The version of the schema, 0 if no migration was applied. Fails if there is no schema.
SELECT coalesce(max(m.version), 0)::bigint AS version FROM _sqlx_migrations m WHERE m.success

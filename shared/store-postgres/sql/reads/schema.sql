-- The version of the schema, 0 when no migration was applied. Fails when there is no schema.
SELECT coalesce(max(m.version), 0)::bigint AS version FROM _sqlx_migrations m WHERE m.success

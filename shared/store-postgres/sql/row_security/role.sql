-- Adds the role that statements on behalf of a tenant run under. Roles belong to the whole server:
-- another database's installation may have added it, or may be adding it right now.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'mainspring_tenant') THEN
        BEGIN
            CREATE ROLE mainspring_tenant NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END IF;
    EXECUTE format('GRANT mainspring_tenant TO %I', current_user);
END
$$

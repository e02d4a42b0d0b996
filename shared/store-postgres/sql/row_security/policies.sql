-- Separates tenants in every table whose rows have a tenant: under the tenants' role, rows of other
-- tenants are not visible. Other users of the tables see what they saw before, and the policies are
-- not even applied to the owner. Everyone sees the pauses that the operator set for all tenants,
-- which have the tenant 0; tables whose rows have no tenant may be read.
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT
            c.oid::regclass AS name, n.nspname,
            EXISTS (
                SELECT FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
            ) AS is_of_tenants,
            EXISTS (
                SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'mainspring_tenant'
            ) AS has_policy
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r'
          AND c.relnamespace = (SELECT t.relnamespace FROM pg_class t WHERE t.oid = 'tenants'::regclass)
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO mainspring_tenant', found.nspname);
        IF NOT found.is_of_tenants THEN
            EXECUTE format('GRANT SELECT ON %s TO mainspring_tenant', found.name);
            CONTINUE;
        END IF;
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO mainspring_tenant', found.name);
        IF NOT found.has_policy THEN
            EXECUTE format(
                'CREATE POLICY mainspring_tenant ON %s USING (current_user <> ''mainspring_tenant'' '
                'OR tenant = NULLIF(current_setting(''mainspring.tenant'', TRUE), '''')::integer)',
                found.name
            );
            IF found.name = 'pauses'::regclass THEN
                CREATE POLICY mainspring_everyone ON pauses FOR SELECT USING (tenant = 0);
            END IF;
        END IF;
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', found.name);
    END LOOP;
    FOR found IN
        SELECT s.oid::regclass AS name FROM pg_class s
        WHERE s.relkind = 'S'
          AND s.relnamespace = (SELECT t.relnamespace FROM pg_class t WHERE t.oid = 'tenants'::regclass)
    LOOP
        EXECUTE format('GRANT USAGE ON SEQUENCE %s TO mainspring_tenant', found.name);
    END LOOP;
END
$$

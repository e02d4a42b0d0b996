-- Rejects writes for a tenant that is not on this database. It runs after the statement, when the
-- transaction already has its id: whoever records that a tenant leaves and then waits for the
-- transactions that have an id knows that every later one sees the record.
CREATE OR REPLACE FUNCTION mainspring_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('mainspring.moves', TRUE) IS DISTINCT FROM 'on'
        AND EXISTS (SELECT FROM tenants_away a WHERE a.tenant IN (SELECT c.tenant FROM changed c))
    THEN
        RAISE EXCEPTION 'a tenant is on another database' USING ERRCODE = 'MS001';
    END IF;
    RETURN NULL;
END
$$

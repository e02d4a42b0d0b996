-- Refuses what is written for a tenant that is not on this database. It is asked after the statement, when the transaction
-- has its number: whoever notes that a tenant leaves and then waits for the transactions that have one knows that none
-- follows which has not seen the note.
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

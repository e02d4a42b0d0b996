-- Sessions that wait for a seat, of all tenants.
SELECT count(*) FROM seats WHERE waits_since IS NOT NULL;

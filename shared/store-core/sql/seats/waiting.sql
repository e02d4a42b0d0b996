-- Counts the sessions of all tenants that wait for a seat.
SELECT count(*) FROM seats WHERE waits_since IS NOT NULL;

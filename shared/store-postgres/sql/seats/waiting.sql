-- Counts the sessions of all tenants that wait for a seat. Index: seats_line.
SELECT count(*) AS waiting FROM seats w WHERE w.waits_since IS NOT NULL

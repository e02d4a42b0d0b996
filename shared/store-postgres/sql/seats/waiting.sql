-- Sessions that wait for a seat, of all tenants. Index: seats_line.
SELECT count(*) AS waiting FROM seats w WHERE w.waits_since IS NOT NULL

-- Seats taken of the tenant $1, those of leaves among them, by the primary key. What ended may be among them.
SELECT count(*) AS sends, CAST(coalesce(sum(leaf), 0) AS INTEGER) AS leaves
FROM seats WHERE tenant = $1 AND waits_since IS NULL;

-- Seats taken of a tenant, those of leaves among them. What ended may be among them.
-- Index: seats_pkey.
SELECT count(*) AS sends, count(*) FILTER (WHERE t.leaf) AS leaves
FROM seats t
WHERE t.tenant = $1::integer AND t.waits_since IS NULL

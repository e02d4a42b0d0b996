-- How many of the tenant $1 have seats, and how many wait, of each kind, by the primary key. What ended may be among
-- them.
SELECT agent, leaf, count(*) - count(waits_since) AS taken, count(waits_since) AS waiting
FROM seats WHERE tenant = $1
GROUP BY agent, leaf
ORDER BY agent, leaf;

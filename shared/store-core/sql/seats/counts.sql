-- How many sessions of the tenant $1 have seats, and how many wait, by kind, by the primary key.
-- Seats whose sends have ended may be included.
SELECT agent, leaf, count(*) - count(waits_since) AS taken, count(waits_since) AS waiting
FROM seats WHERE tenant = $1
GROUP BY agent, leaf
ORDER BY agent, leaf;

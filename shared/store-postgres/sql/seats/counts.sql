-- How many sessions of a tenant have seats, and how many wait, by kind. Seats whose sends have
-- ended may be included.
-- Index: seats_pkey.
SELECT t.agent, t.leaf, count(*) - count(t.waits_since) AS taken, count(t.waits_since) AS waiting
FROM seats t
WHERE t.tenant = $1::integer
GROUP BY t.agent, t.leaf
ORDER BY t.agent, t.leaf

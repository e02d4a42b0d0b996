-- The first of a tenant's open sends. Index: sends_open; without the fence the primary key, which has all that
-- ended, would be read in the order of the ids.
WITH open AS MATERIALIZED (
    SELECT s.send_id FROM sends s
    WHERE s.tenant = $1::integer AND s.finished_at IS NULL
)
SELECT o.send_id FROM open o ORDER BY o.send_id LIMIT 1

-- What MySQL says differently about audits in pieces. A name of a common table stands for the table itself inside of its own
-- definition. Comparisons of pairs do not use an index.

-- name: pieces/sessions
-- The rows of the sessions $6 to $7 of the tenant $5.
WITH session_hot AS (
    SELECT * FROM session_hot WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), sessions AS (
    SELECT * FROM sessions WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), sends AS (
    SELECT * FROM sends WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), messages AS (
    SELECT * FROM messages WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), steps AS (
    SELECT * FROM steps WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), inbox AS (
    SELECT * FROM inbox WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), folds AS (
    SELECT * FROM folds WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), projections AS (
    SELECT * FROM projections WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), retired_steps AS (
    SELECT * FROM retired_steps WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), tool_calls AS (
    SELECT c.*
    FROM sends s
    JOIN tool_calls c
        ON c.tenant = s.tenant AND c.call_id >= concat('call_', lower(hex(s.send_id)), '_')
        AND c.call_id < concat('call_', lower(hex(s.send_id)), '`')
), usage_rows AS (
    SELECT u.* FROM sends s JOIN usage_rows u ON u.tenant = s.tenant AND u.send_id = s.send_id
)
SELECT '' AS invariant, json_object('count', count(*)) AS `row` FROM session_hot

-- name: pieces/runs
-- The rows of the runs $6 to $7 of the tenant $5.
WITH runs AS (
    SELECT * FROM runs WHERE tenant = $5 AND run_id BETWEEN $6 AND $7
), run_nodes AS (
    SELECT * FROM run_nodes WHERE tenant = $5 AND run_id BETWEEN $6 AND $7
), run_steps AS (
    SELECT * FROM run_steps WHERE tenant = $5 AND run_id BETWEEN $6 AND $7
), sends AS (
    SELECT * FROM sends LIMIT 0
)
SELECT '' AS invariant, json_object('count', count(*)) AS `row` FROM runs

-- name: pieces/timers
-- The rows of the timers $6 to $7 of the tenant $5.
WITH timers AS (
    SELECT * FROM timers WHERE tenant = $5 AND timer_id BETWEEN $6 AND $7
), timer_occurrences AS (
    SELECT * FROM timer_occurrences WHERE tenant = $5 AND timer_id BETWEEN $6 AND $7
)
SELECT '' AS invariant, json_object('count', count(*)) AS `row` FROM timers

-- name: pieces/next_sessions
-- The next sessions from $2 of the tenant $1 on, by the primary key.
SELECT r.tenant, r.session_id AS id FROM session_hot r
WHERE (r.tenant > $1 OR r.tenant = $1 AND r.session_id >= $2)
  AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.tenant = r.tenant AND t.erasing_at IS NOT NULL)
ORDER BY r.tenant, r.session_id
LIMIT $3;

-- name: pieces/next_runs
-- The next runs from $2 of the tenant $1 on, by the primary key.
SELECT r.tenant, r.run_id AS id FROM runs r
WHERE (r.tenant > $1 OR r.tenant = $1 AND r.run_id >= $2)
  AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.tenant = r.tenant AND t.erasing_at IS NOT NULL)
ORDER BY r.tenant, r.run_id
LIMIT $3;

-- name: pieces/next_timers
-- The next timers from $2 of the tenant $1 on, by the primary key.
SELECT r.tenant, r.timer_id AS id FROM timers r
WHERE (r.tenant > $1 OR r.tenant = $1 AND r.timer_id >= $2)
  AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.tenant = r.tenant AND t.erasing_at IS NOT NULL)
ORDER BY r.tenant, r.timer_id
LIMIT $3;

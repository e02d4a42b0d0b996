-- The rows of the sessions $6 to $7 of the tenant $5, under the names of the tables: the invariants
-- that follow see nothing else. Call ids begin with the id of their send.
WITH session_hot AS MATERIALIZED (
    SELECT * FROM main.session_hot WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), sessions AS MATERIALIZED (
    SELECT * FROM main.sessions WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), sends AS MATERIALIZED (
    SELECT * FROM main.sends WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), messages AS MATERIALIZED (
    SELECT * FROM main.messages WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), steps AS MATERIALIZED (
    SELECT * FROM main.steps WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), inbox AS MATERIALIZED (
    SELECT * FROM main.inbox WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), folds AS MATERIALIZED (
    SELECT * FROM main.folds WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), projections AS MATERIALIZED (
    SELECT * FROM main.projections WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), retired_steps AS MATERIALIZED (
    SELECT * FROM main.retired_steps WHERE tenant = $5 AND session_id BETWEEN $6 AND $7
), tool_calls AS MATERIALIZED (
    SELECT c.*
    FROM sends s
    JOIN main.tool_calls c
        ON c.tenant = s.tenant AND c.call_id >= 'call_' || lower(hex(s.send_id)) || '_'
        AND c.call_id < 'call_' || lower(hex(s.send_id)) || '`'
), usage_rows AS MATERIALIZED (
    SELECT u.* FROM sends s JOIN main.usage_rows u ON u.tenant = s.tenant AND u.send_id = s.send_id
)
SELECT '' AS invariant, json_object('count', count(*)) AS violation FROM session_hot

-- Sends whose usage is not the sum of their usage rows and of what their children and runs used. A
-- sum that contains an estimate may be higher: calls whose end nobody saw have no row. Calls that
-- were pruned cannot show whether they made a child.
WITH paid AS MATERIALIZED (
    SELECT tenant, send_id, CAST(sum("usage" ->> 'input_tokens') AS INTEGER) AS input,
           CAST(sum("usage" ->> 'output_tokens') AS INTEGER) AS output
    FROM usage_rows
    WHERE round <> -1
    GROUP BY tenant, send_id
), makers AS MATERIALIZED (
    SELECT DISTINCT tenant, send_id FROM tool_calls
    WHERE name IN ('spawn_agent', 'create_workflow')
), told AS MATERIALIZED (
    SELECT DISTINCT tenant, session_id FROM inbox
    WHERE kind = 'child' OR item_id LIKE 'run:%'
), sums AS MATERIALIZED (
    SELECT s.tenant, s.session_id, s.send_id,
           coalesce(p.input, 0) AS paid_input, coalesce(p.output, 0) AS paid_output,
           coalesce(CAST(s."usage" ->> 'input_tokens' AS INTEGER), 0) AS input,
           coalesce(CAST(s."usage" ->> 'output_tokens' AS INTEGER), 0) AS output,
           coalesce(CAST(s."usage" ->> 'estimated' AS TEXT) IN ('true', '1'), 0)
               OR c.first_seq > 1 OR m.send_id IS NOT NULL
               OR t.session_id IS NOT NULL OR s.options ->> 'ended_run' IS NOT NULL AS may_be_more
    FROM sends s
    JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
    LEFT JOIN paid p ON p.send_id = s.send_id AND p.tenant = s.tenant
    LEFT JOIN makers m ON m.send_id = s.send_id AND m.tenant = s.tenant
    LEFT JOIN told t ON t.session_id = s.session_id AND t.tenant = s.tenant
)
SELECT json_object('session', 'ses_' || lower(hex(session_id)),
                   'send', 'snd_' || lower(hex(send_id)),
                   'rows', json_array(paid_input, paid_output), 'used', json_array(input, output))
FROM sums
WHERE input < paid_input OR output < paid_output
   OR (input > paid_input OR output > paid_output) AND NOT may_be_more
ORDER BY tenant, session_id, send_id
LIMIT $1;

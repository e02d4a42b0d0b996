-- A send's usage is the sum of its usage rows and of what its children and runs used. A sum that
-- contains an estimate may be higher: calls whose end nobody saw have no row. Calls that were
-- pruned cannot show whether they made a child.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
paid AS MATERIALIZED (
    SELECT
        u.tenant, u.send_id, sum((u.usage::json ->> 'input_tokens')::bigint) AS input,
        sum((u.usage::json ->> 'output_tokens')::bigint) AS output
    FROM usage_rows u
    WHERE u.round <> -1
    GROUP BY u.tenant, u.send_id
),
makers AS MATERIALIZED (
    SELECT DISTINCT c.tenant, c.send_id FROM tool_calls c
    WHERE c.name IN ('spawn_agent', 'create_workflow')
),
told AS MATERIALIZED (
    SELECT DISTINCT i.tenant, i.session_id FROM inbox i
    WHERE i.kind = 'child' OR i.item_id LIKE 'run:%'
),
sums AS MATERIALIZED (
    SELECT
        s.tenant, s.session_id, s.send_id,
        coalesce(p.input, 0) AS paid_input, coalesce(p.output, 0) AS paid_output,
        coalesce((s.usage::json ->> 'input_tokens')::bigint, 0) AS input,
        coalesce((s.usage::json ->> 'output_tokens')::bigint, 0) AS output,
        coalesce((s.usage::json ->> 'estimated')::boolean, FALSE)
            OR c.first_seq > 1 OR m.send_id IS NOT NULL OR t.session_id IS NOT NULL
            OR s.options::json ->> 'ended_run' IS NOT NULL AS may_be_more
    FROM sends s
    JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
    LEFT JOIN paid p ON p.tenant = s.tenant AND p.send_id = s.send_id
    LEFT JOIN makers m ON m.tenant = s.tenant AND m.send_id = s.send_id
    LEFT JOIN told t ON t.tenant = s.tenant AND t.session_id = s.session_id
)
SELECT json_build_object(
    'session', v.session_id, 'send', v.send_id, 'rows',
    json_build_array(v.paid_input, v.paid_output), 'used', json_build_array(v.input, v.output)
)::text AS row
FROM sums v
WHERE v.input < v.paid_input OR v.output < v.paid_output
   OR (v.input > v.paid_input OR v.output > v.paid_output) AND NOT v.may_be_more
ORDER BY v.tenant, v.session_id, v.send_id
LIMIT (SELECT b.rows_max FROM bound b)

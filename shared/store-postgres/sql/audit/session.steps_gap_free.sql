-- Steps are numbered without gaps from 1 up to, but not including, the hot row's next_step, except
-- for those that were removed with their sends.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', h.session_id, 'steps', count(t.n), 'first', min(t.n), 'last', max(t.n),
    'next_step', h.next_step
)::text AS row
FROM session_hot h
LEFT JOIN steps t ON t.tenant = h.tenant AND t.session_id = h.session_id
LEFT JOIN retired_steps r ON r.tenant = h.tenant AND r.session_id = h.session_id
GROUP BY h.tenant, h.session_id, h.next_step, r.steps
HAVING count(t.n) + coalesce(r.steps, 0) <> h.next_step - 1
    OR min(t.n) < 1 OR max(t.n) > h.next_step - 1
ORDER BY h.tenant, h.session_id
LIMIT (SELECT b.rows_max FROM bound b)

-- Rows refer only to their own tenant: none names a session, a send or a run that only another
-- tenant has.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
),
named AS MATERIALIZED (
    SELECT s.tenant, 'session' AS what, s.session_id AS id FROM sends s
    UNION SELECT m.tenant, 'session', m.session_id FROM messages m
    UNION SELECT t.tenant, 'session', t.session_id FROM steps t
    UNION SELECT c.tenant, 'session', c.session_id FROM tool_calls c
    UNION SELECT i.tenant, 'session', i.session_id FROM inbox i
    UNION SELECT a.tenant, 'session', a.session_id FROM agents a
    UNION SELECT u.tenant, 'session', u.session_id FROM usage_rows u
    UNION SELECT f.tenant, 'session', f.session_id FROM folds f
    UNION SELECT p.tenant, 'session', p.session_id FROM projections p
    UNION SELECT e.tenant, 'session', e.session_id FROM extractions e
    UNION SELECT o.tenant, 'session', substr(o.source::json ->> 'session_id', 5)::uuid FROM memories o
    UNION SELECT p.tenant, 'session', p.parent_session FROM sessions p
    UNION SELECT p.tenant, 'session', p.root_session FROM sessions p
    UNION SELECT r.tenant, 'session', r.session_id FROM runs r
    UNION SELECT t.tenant, 'session', t.session_id FROM timers t
    UNION SELECT m.tenant, 'send', m.send_id FROM messages m WHERE m.epoch > 0
    UNION SELECT t.tenant, 'send', t.send_id FROM steps t
    UNION SELECT c.tenant, 'send', c.send_id FROM tool_calls c
    UNION SELECT i.tenant, 'send', i.send_id FROM inbox i
    UNION SELECT u.tenant, 'send', u.send_id FROM usage_rows u
    UNION SELECT e.tenant, 'send', e.send_id FROM extractions e
    UNION SELECT o.tenant, 'send', substr(o.source::json ->> 'send_id', 5)::uuid FROM memories o
    UNION SELECT s.tenant, 'run', s.run_id FROM sends s
),
has AS MATERIALIZED (
    SELECT h.tenant, 'session' AS what, h.session_id AS id FROM session_hot h
    UNION ALL SELECT s.tenant, 'send', s.send_id FROM sends s
    UNION ALL SELECT r.tenant, 'run', r.run_id FROM runs r
)
SELECT DISTINCT ON (n.tenant, n.what, n.id)
    json_build_object('tenant', n.tenant, n.what, n.id, 'of', o.tenant)::text AS row
FROM named n
LEFT JOIN has h ON h.tenant = n.tenant AND h.what = n.what AND h.id = n.id
JOIN has o ON o.what = n.what AND o.id = n.id
WHERE h.id IS NULL
ORDER BY n.tenant, n.what, n.id
LIMIT (SELECT b.rows_max FROM bound b)

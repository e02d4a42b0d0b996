-- Reads a page of sends after $4, by id, and deletes those that ended long ago, or whose run is
-- gone, with their steps, calls and usage; counts the removed steps. Sends that were not reported
-- yet are kept. What it deletes is final: nobody else writes it.
-- Index: sends_pkey, steps_pkey, tool_calls_pkey, usage_rows_pkey.
WITH bound AS MATERIALIZED (
    SELECT n.now - $2::bigint AS before, n.now - $6::bigint AS young
    FROM (
        SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
    ) n
),
looked AS MATERIALIZED (
    SELECT
        s.tenant, s.send_id, s.created_at < b.young AS may_follow,
        s.created_at < b.before AND (s.finished_at IS NULL OR s.finished_at < b.before) AS is_old,
        coalesce(sum(s.rounds) OVER (
            ORDER BY s.send_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS weight,
        s.finished_at IS NOT NULL
            AND (s.reports_to IS NULL OR s.reported_at IS NOT NULL)
            AND CASE
                WHEN s.run_id IS NULL THEN s.finished_at < b.before
                ELSE NOT EXISTS (
                    SELECT FROM runs r WHERE r.tenant = s.tenant AND r.run_id = s.run_id
                )
            END AS may_go
    FROM (
        SELECT
            o.tenant, o.send_id, o.created_at, o.finished_at, o.reports_to, o.reported_at,
            o.run_id, o.rounds
        FROM sends o
        WHERE o.tenant = $3::integer AND o.send_id > $4::uuid
        ORDER BY o.send_id
        LIMIT $5::bigint
    ) s
    CROSS JOIN bound b
),
-- The rounds of the sends also bound what a page may remove.
page AS MATERIALIZED (
    SELECT l.tenant, l.send_id, l.may_follow, l.may_go, l.is_old
    FROM looked l
    WHERE l.weight < $5::bigint
),
gone AS (
    DELETE FROM sends d
    USING page p
    WHERE p.may_go AND d.tenant = p.tenant AND d.send_id = p.send_id
    RETURNING
        d.tenant, d.session_id, d.send_id, d.first_step,
        'call_' || replace(d.send_id::text, '-', '') AS calls
),
homes AS (
    SELECT
        g.tenant, g.session_id, min(g.first_step) AS first_step, array_agg(g.send_id) AS sends
    FROM gone g
    GROUP BY g.tenant, g.session_id
),
steps_gone AS (
    DELETE FROM steps d
    USING homes h
    WHERE d.tenant = h.tenant AND d.session_id = h.session_id AND d.n >= h.first_step
      AND d.send_id = ANY (h.sends)
    RETURNING d.tenant, d.session_id
),
counted AS (
    INSERT INTO retired_steps AS r (tenant, session_id, steps)
    SELECT t.tenant, t.session_id, count(*)
    FROM steps_gone t
    GROUP BY t.tenant, t.session_id
    ORDER BY t.tenant, t.session_id
    ON CONFLICT (tenant, session_id) DO UPDATE SET steps = r.steps + excluded.steps
),
calls_gone AS (
    DELETE FROM tool_calls d
    USING gone g
    WHERE d.tenant = g.tenant AND d.call_id >= g.calls || '_' AND d.call_id < g.calls || '`'
    RETURNING 1
),
usage_gone AS (
    DELETE FROM usage_rows d
    USING gone g
    WHERE d.tenant = g.tenant AND d.send_id = g.send_id
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM gone) + (SELECT count(*) FROM steps_gone)
        + (SELECT count(*) FROM calls_gone) + (SELECT count(*) FROM usage_gone) AS removed,
    (
        SELECT CASE WHEN p.may_follow THEN p.send_id END
        FROM page p
        WHERE (SELECT count(*) FROM looked) = $5::bigint
           OR (SELECT count(*) FROM page) < (SELECT count(*) FROM looked)
        ORDER BY p.send_id DESC
        LIMIT 1
    ) AS next,
    (SELECT count(*) FROM page p WHERE p.is_old AND NOT p.may_go) AS skipped

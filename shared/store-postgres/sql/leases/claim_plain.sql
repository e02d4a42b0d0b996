-- Takes the leases of those sessions of a group that have no owner and whose head send has not
-- started yet, for tenants without a limit of sends in flight: the most common case. An item
-- without a row in the result is a different case, or another transaction changed it in the
-- meantime: claim.sql, which handles every case, tells which. It grants exactly what claim.sql
-- would.
-- Index: session_hot_pkey, boots_pkey, sends_open, sends_pkey, seat_limits_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
hot AS MATERIALIZED (
    SELECT
        i.ord, i.token, i.crashes_below, h.tenant, h.session_id, h.epoch, h.next_seq, h.pending,
        h.signals, h.spent, h.context_version
    FROM unnest($3::integer[], $4::uuid[], $5::uuid[], $6::integer[])
        WITH ORDINALITY AS i (tenant, session_id, token, crashes_below, ord)
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    -- The test for readiness is written so that no plan searches the index of all ready sessions.
    WHERE coalesce(h.ready_since, -1) <> -1 AND h.lifecycle <> 2 AND h.active = 0
      AND h.owner_boot IS NULL
      AND NOT EXISTS (
          SELECT FROM boots b WHERE b.boot_id = $2::uuid AND b.dead_at IS NOT NULL
      )
      AND NOT EXISTS (SELECT FROM seat_limits l WHERE l.tenant = h.tenant)
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
head AS MATERIALIZED (
    SELECT
        h.ord, h.token, h.tenant, h.session_id, h.epoch, h.next_seq, h.pending, h.signals, h.spent,
        h.context_version, n.send_id
    FROM hot h
    CROSS JOIN LATERAL (
        SELECT s.send_id, s.crashes FROM sends s
        WHERE s.tenant = h.tenant AND s.session_id = h.session_id
          AND s.finished_at IS NULL AND s.position IS NOT NULL
        ORDER BY s.position
        LIMIT 1
    ) n
    WHERE n.crashes < h.crashes_below
),
started AS (
    UPDATE sends s SET
        status = 'running',
        waiting_on = NULL,
        agent_version = coalesce(s.agent_version, (
            SELECT x.agent_version FROM sessions x
            WHERE x.tenant = k.tenant AND x.session_id = k.session_id
        )),
        alarm_at = s.deadline_at,
        started_at = coalesce(s.started_at, c.now)
    FROM head k CROSS JOIN clock c
    WHERE s.tenant = k.tenant AND s.session_id = k.session_id AND s.send_id = k.send_id
      AND s.status = 'queued'
    RETURNING
        k.ord, k.token, k.epoch + 1 AS epoch, k.next_seq, k.pending - 1 AS pending, k.signals,
        k.spent, k.context_version,
        {s.send}
),
granted AS (
    UPDATE session_hot h SET
        owner_boot = $2::uuid,
        token = t.token,
        epoch = t.epoch,
        writes = 0,
        pending = t.pending,
        active = 1
    FROM started t
    WHERE h.tenant = t.tenant AND h.session_id = t.session_id
)
SELECT
    t.ord, {t.send},
    (
        SELECT a.spec FROM agents a
        WHERE a.tenant = t.tenant AND a.session_id = t.session_id AND a.version = t.agent_version
    ) AS spec,
    NULL::text AS resumed, t.next_seq, t.pending, t.signals, t.context_version, t.epoch, t.spent,
    false AS seated, 'granted' AS state
FROM started t

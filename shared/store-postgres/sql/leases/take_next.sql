-- Starts the next send of sessions whose lease was kept after a final send, with a snapshot of its
-- own, or releases the lease if that send was cancelled in the meantime. An item without a row in
-- the result lost its lease.
-- Index: session_hot_pkey, sends_open, sends_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
hot AS MATERIALIZED (
    SELECT
        i.ord, h.tenant, h.session_id, h.next_seq, h.pending, h.signals,
        h.context_version, h.pool, h.priority
    FROM unnest($2::integer[], $3::uuid[], $4::uuid[], $5::uuid[])
        WITH ORDINALITY AS i (tenant, session_id, boot, token, ord)
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token AND h.owner_boot = i.boot AND h.active = 0
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
head AS MATERIALIZED (
    SELECT h.ord, h.tenant, h.session_id, n.send_id
    FROM hot h
    CROSS JOIN LATERAL (
        SELECT s.send_id FROM sends s
        WHERE s.tenant = h.tenant AND s.session_id = h.session_id
          AND s.finished_at IS NULL AND s.position IS NOT NULL
        ORDER BY s.position
        LIMIT 1
    ) n
    WHERE h.pending > 0
),
started AS (
    UPDATE sends s SET
        status = 'running',
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
        k.ord,
        {s.send}
),
moved AS (
    UPDATE session_hot h SET
        owner_boot = CASE WHEN t.ord IS NOT NULL THEN h.owner_boot END,
        token = CASE WHEN t.ord IS NOT NULL THEN h.token END,
        pending = o.pending - (t.ord IS NOT NULL)::integer,
        active = (t.ord IS NOT NULL)::integer,
        ready_since = CASE
            WHEN t.ord IS NOT NULL THEN h.ready_since
            WHEN o.pending > 0 THEN c.now
        END
    FROM hot o LEFT JOIN started t ON t.ord = o.ord CROSS JOIN clock c
    WHERE h.tenant = o.tenant AND h.session_id = o.session_id
)
SELECT
    o.ord, {t.send},
    (
        SELECT a.spec FROM agents a
        WHERE a.tenant = t.tenant AND a.session_id = t.session_id AND a.version = t.agent_version
    ) AS spec,
    o.next_seq, o.pending - (t.ord IS NOT NULL)::integer AS pending, o.signals,
    o.context_version,
    CASE WHEN t.ord IS NULL AND o.pending > 0 THEN c.now END AS ready_since, o.pool, o.priority
FROM hot o LEFT JOIN started t ON t.ord = o.ord CROSS JOIN clock c

-- Accepts a group of plain sends: to existing sessions, without an idempotency key, delay, parent
-- or run, and not under on_busy: reject. It stores and refuses what accept.sql would. If a session
-- is at rest and its send names the worker that keeps it, the session is granted to that worker, as
-- claim.sql would grant it.
-- Index: session_hot_pkey, boots_pkey, seat_limits_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.send_id, i.input, i.options, i.queued_max, i.priority,
        i.deadline_ms, i.keeper, i.ord
    FROM unnest(
        $3::integer[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::bigint[], $9::smallint[],
        $10::bigint[], $11::uuid[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, send_id, input, options, queued_max, priority, deadline_ms, keeper, ord
    )
),
-- The live workers that sessions may be granted to, with their pools.
keeper AS MATERIALIZED (
    SELECT b.boot_id, b.pool
    FROM clock c
    JOIN boots b ON b.boot_id = ANY ($11::uuid[]) AND b.dead_at IS NULL AND b.lease_until >= c.now
),
hot AS MATERIALIZED (
    SELECT
        h.tenant, h.session_id, h.next_position, h.next_step, h.pending, h.active, h.ready_since,
        h.lifecycle, h.pool, h.owner_boot, h.epoch, h.next_seq, h.signals, h.context_version, h.spent
    FROM (SELECT DISTINCT i.tenant, i.session_id FROM item i) w
    JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
sized AS MATERIALIZED (
    SELECT
        i.ord, i.keeper, h.pool, h.next_position, h.next_step,
        h.ready_since IS NULL AND h.active <> 2 AS rests,
        CASE
            WHEN h.session_id IS NULL OR h.lifecycle = 2 THEN 1
            WHEN h.lifecycle = 1 THEN 2
            WHEN i.queued_max <= h.pending + row_number() OVER s - 1 THEN 4
            ELSE 0
        END AS refusal,
        i.tenant, i.session_id
    FROM item i LEFT JOIN hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WINDOW s AS (PARTITION BY i.tenant, i.session_id ORDER BY i.ord)
),
stored AS MATERIALIZED (
    SELECT
        z.ord, z.tenant, z.session_id, z.pool, c.now,
        z.next_step + row_number() OVER s - 1 AS n,
        z.next_position + row_number() OVER s - 1 AS position,
        z.rests AND row_number() OVER s = 1 AS rings,
        CASE WHEN z.rests AND row_number() OVER s = 1 THEN z.keeper END AS keeper
    FROM sized z CROSS JOIN clock c
    WHERE z.refusal = 0
    WINDOW s AS (PARTITION BY z.tenant, z.session_id ORDER BY z.ord)
),
granted AS MATERIALIZED (
    SELECT
        s.ord, s.tenant, s.session_id, s.keeper, i.send_id, h.epoch + 1 AS epoch, h.next_seq, h.signals, h.context_version, h.spent,
        x.agent_version
    FROM stored s
    JOIN item i ON i.ord = s.ord
    JOIN keeper k ON k.boot_id = s.keeper AND k.pool = s.pool
    JOIN hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
    JOIN sessions x ON x.tenant = s.tenant AND x.session_id = s.session_id
    WHERE h.owner_boot IS NULL AND h.active = 0 AND h.pending = 0
      AND NOT EXISTS (SELECT FROM seat_limits l WHERE l.tenant = s.tenant)
),
raised AS (
    UPDATE session_hot h SET
        next_step = h.next_step + b.sends,
        next_position = h.next_position + b.sends,
        pending = h.pending + b.sends - CASE WHEN g.ord IS NULL THEN 0 ELSE 1 END,
        ready_since = coalesce(h.ready_since, b.ready_since),
        priority = coalesce(b.priority, h.priority),
        owner_boot = coalesce(g.keeper, h.owner_boot),
        token = coalesce(g.send_id, h.token),
        epoch = coalesce(g.epoch, h.epoch),
        writes = CASE WHEN g.ord IS NULL THEN h.writes ELSE 0 END,
        active = CASE WHEN g.ord IS NULL THEN h.active ELSE 1 END
    FROM (
        SELECT
            s.tenant, s.session_id, count(*) AS sends,
            min(s.now) FILTER (WHERE s.rings) AS ready_since,
            min(i.priority) FILTER (WHERE s.rings) AS priority
        FROM stored s JOIN item i ON i.ord = s.ord
        GROUP BY s.tenant, s.session_id
    ) b LEFT JOIN granted g ON g.tenant = b.tenant AND g.session_id = b.session_id
    WHERE h.tenant = b.tenant AND h.session_id = b.session_id
),
new_send AS (
    INSERT INTO sends (
        tenant, send_id, session_id, position, status, input, options, deadline_at, alarm_at,
        first_step, created_at, started_at, agent_version
    )
    SELECT
        i.tenant, i.send_id, i.session_id, s.position,
        CASE WHEN g.ord IS NULL THEN 'queued' ELSE 'running' END, i.input, i.options,
        s.now + i.deadline_ms, s.now + i.deadline_ms, s.n, s.now,
        CASE WHEN g.ord IS NOT NULL THEN s.now END, g.agent_version
    FROM stored s JOIN item i ON i.ord = s.ord LEFT JOIN granted g ON g.ord = s.ord
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT s.tenant, s.session_id, s.n, i.send_id, 'accepted', 0, $2::uuid, s.now, '{}'
    FROM stored s JOIN item i ON i.ord = s.ord
)
SELECT
    s.ord, 0 AS code, s.position, s.n, s.now, s.rings, s.pool,
    g.epoch, g.next_seq, g.signals, g.context_version, g.spent, g.agent_version
FROM stored s LEFT JOIN granted g ON g.ord = s.ord
UNION ALL
SELECT z.ord, z.refusal, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM sized z WHERE z.refusal <> 0

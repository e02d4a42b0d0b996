-- Accepts a group of sends: one statement, one commit. For each send, its row, its step, its
-- idempotency key and its part of the hot row are stored together or not at all.
-- Locks the hot rows in key order and decides from them alone, because after a wait for a lock they
-- are fresh and other rows may not be. Returns one row per item that was stored (code 0) or refused
-- (1: the session, or the parent of a new one, was not found; 2: closed; 3: busy; 4: full). An item
-- without a row: its idempotency key was already taken.
-- If a session is at rest and its send names the worker that keeps it, the session is granted to
-- that worker, as claim.sql would grant it.
-- Index: session_hot_pkey, boots_pkey, seat_limits_pkey; sends_open for delayed sends, only under on_busy: reject.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.send_id, i.input, i.options, i.queued_max, i.priority, i.delay_ms,
        i.deadline_ms, i.reject, i.key_tenant, i.route, i.key, i.body_hash, i.agent, i.agent_name,
        i.metadata, i.pool, i.reports_to, i.parent_session, i.parent_call, i.root_session, i.depth,
        i.run_id, i.run_path, i.run_attempt, i.keeper, i.ord
    FROM unnest(
        $3::integer[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::bigint[], $9::smallint[],
        $10::bigint[], $11::bigint[], $12::boolean[], $13::integer[], $14::text[], $15::text[],
        $16::bytea[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::uuid[],
        $23::text[], $24::uuid[], $25::integer[], $26::uuid[], $27::text[], $28::integer[],
        $29::uuid[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, send_id, input, options, queued_max, priority, delay_ms,
        deadline_ms, reject, key_tenant, route, key, body_hash, agent, agent_name,
        metadata, pool, reports_to, parent_session, parent_call, root_session, depth, run_id,
        run_path, run_attempt, keeper, ord
    )
),
-- The live workers that sessions may be granted to, with their pools.
keeper AS MATERIALIZED (
    SELECT b.boot_id, b.pool
    FROM clock c
    JOIN boots b ON b.boot_id = ANY ($29::uuid[]) AND b.dead_at IS NULL AND b.lease_until >= c.now
),
hot AS MATERIALIZED (
    SELECT
        h.tenant, h.session_id, h.next_position, h.next_step, h.pending, h.active, h.ready_since,
        h.lifecycle, h.pool, h.owner_boot, h.epoch, h.next_seq, h.signals, h.context_version, h.spent
    FROM (
        SELECT i.tenant, i.session_id FROM item i WHERE i.agent IS NULL
        UNION
        SELECT i.tenant, i.parent_session FROM item i
        WHERE i.agent IS NOT NULL AND i.parent_session IS NOT NULL AND i.run_id IS NULL
    ) w
    JOIN session_hot h ON h.tenant = w.tenant AND h.session_id = w.session_id
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
judged AS (
    SELECT
        i.tenant, i.session_id, i.send_id, i.input, i.options, i.queued_max, i.priority, i.delay_ms,
        i.deadline_ms, i.key_tenant, i.route, i.key, i.body_hash, i.agent, i.agent_name,
        i.metadata, i.reports_to, i.parent_session, i.parent_call, i.root_session, i.depth,
        i.run_id, i.run_path, i.run_attempt, i.keeper, i.ord,
        coalesce(h.pool, i.pool) AS pool,
        coalesce(h.next_position, 1) AS next_position,
        coalesce(h.next_step, 1) AS next_step,
        coalesce(h.pending, 0) AS pending,
        h.ready_since IS NULL AND coalesce(h.active, 0) <> 2 AS rests,
        CASE
            -- If its parent is gone, nothing would ever delete the child.
            WHEN i.agent IS NOT NULL AND i.parent_session IS NOT NULL AND i.run_id IS NULL
                AND NOT EXISTS (
                    SELECT FROM hot p
                    WHERE p.tenant = i.tenant AND p.session_id = i.parent_session
                      AND p.lifecycle <> 2
                ) THEN 1
            WHEN i.agent IS NOT NULL THEN 0
            WHEN h.session_id IS NULL OR h.lifecycle = 2 THEN 1
            WHEN h.lifecycle = 1 THEN 2
            WHEN i.reject AND (
                h.active <> 0 OR h.pending > 0 OR row_number() OVER s > 1
                OR EXISTS (
                    SELECT FROM sends d
                    WHERE d.tenant = i.tenant AND d.session_id = i.session_id
                      AND d.position IS NULL AND d.finished_at IS NULL
                    -- Keeps the planner from reading the delayed sends of all sessions at once.
                    OFFSET 0
                )
            ) THEN 3
            ELSE 0
        END AS refusal
    FROM item i
    LEFT JOIN hot h ON h.tenant = i.tenant AND h.session_id = i.session_id AND i.agent IS NULL
    WINDOW s AS (PARTITION BY i.tenant, i.session_id ORDER BY i.ord)
),
sized AS MATERIALIZED (
    SELECT
        j.tenant, j.session_id, j.send_id, j.input, j.options, j.priority, j.delay_ms,
        j.deadline_ms, j.key_tenant, j.route, j.key, j.body_hash, j.agent, j.agent_name,
        j.metadata, j.reports_to, j.parent_session, j.parent_call, j.root_session, j.depth,
        j.run_id, j.run_path, j.run_attempt, j.keeper, j.ord,
        j.pool, j.next_position, j.next_step, j.rests,
        CASE
            WHEN j.refusal = 0 AND j.agent IS NULL AND j.queued_max <= j.pending
                + count(*) FILTER (WHERE j.refusal = 0 AND j.delay_ms IS NULL) OVER (
                    PARTITION BY j.tenant, j.session_id ORDER BY j.ord
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) THEN 4
            ELSE j.refusal
        END AS refusal
    FROM judged j
),
keyed AS (
    INSERT INTO idempotency_keys (tenant, route, key, body_hash, resource, created_at)
    SELECT z.key_tenant, z.route, z.key, z.body_hash, z.send_id, c.now
    FROM sized z CROSS JOIN clock c
    WHERE z.refusal = 0 AND z.key IS NOT NULL
    ORDER BY z.key_tenant, z.route, z.key, z.ord
    ON CONFLICT DO NOTHING
    RETURNING resource
),
stored AS MATERIALIZED (
    SELECT
        z.tenant, z.session_id, z.send_id, z.input, z.options, z.priority, z.deadline_ms,
        z.delay_ms, z.agent, z.agent_name, z.metadata, z.reports_to, z.parent_session,
        z.parent_call, z.root_session, z.depth, z.run_id, z.run_path, z.run_attempt, z.keeper, z.ord, z.pool,
        z.rests, c.now,
        z.delay_ms IS NULL AS placed,
        z.next_step + row_number() OVER s - 1 AS n,
        z.next_position - 1 + count(*) FILTER (WHERE z.delay_ms IS NULL) OVER s AS position,
        z.rests AND z.delay_ms IS NULL
            AND count(*) FILTER (WHERE z.delay_ms IS NULL) OVER s = 1 AS rings
    FROM sized z CROSS JOIN clock c
    WHERE z.refusal = 0 AND (z.key IS NULL OR z.send_id IN (SELECT k.resource FROM keyed k))
    WINDOW s AS (
        PARTITION BY z.tenant, z.session_id ORDER BY z.ord
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
granted AS MATERIALIZED (
    SELECT
        s.ord, s.tenant, s.session_id, s.keeper, s.send_id, h.epoch + 1 AS epoch, h.next_seq,
        h.signals, h.context_version, h.spent, x.agent_version
    FROM stored s
    JOIN keeper k ON k.boot_id = s.keeper AND k.pool = s.pool
    JOIN hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
    JOIN sessions x ON x.tenant = s.tenant AND x.session_id = s.session_id
    WHERE s.rings AND s.agent IS NULL
      AND h.owner_boot IS NULL AND h.active = 0 AND h.pending = 0
      AND NOT EXISTS (SELECT FROM seat_limits l WHERE l.tenant = s.tenant)
),
new_session AS (
    INSERT INTO sessions (
        tenant, session_id, agent_version, agent_name, metadata, parent_session, parent_call,
        root_session, depth, created_at, updated_at
    )
    SELECT
        s.tenant, s.session_id, 1, s.agent_name, s.metadata::jsonb, s.parent_session, s.parent_call,
        s.root_session, s.depth, s.now, s.now
    FROM stored s WHERE s.agent IS NOT NULL
),
new_agent AS (
    INSERT INTO agents (tenant, session_id, version, spec)
    SELECT s.tenant, s.session_id, 1, s.agent
    FROM stored s WHERE s.agent IS NOT NULL
),
new_hot AS (
    INSERT INTO session_hot
        (tenant, session_id, next_position, next_step, pending, ready_since, pool, priority)
    SELECT
        s.tenant, s.session_id, s.position + 1, 2, s.placed::integer,
        CASE WHEN s.placed THEN s.now END, s.pool, CASE WHEN s.placed THEN s.priority ELSE 0 END
    FROM stored s WHERE s.agent IS NOT NULL
),
bump AS (
    SELECT
        s.tenant, s.session_id, count(*) AS steps, count(*) FILTER (WHERE s.placed) AS places,
        min(s.now) FILTER (WHERE s.rings) AS ready_since,
        min(s.priority) FILTER (WHERE s.rings) AS priority
    FROM stored s WHERE s.agent IS NULL
    GROUP BY s.tenant, s.session_id
),
raised AS (
    UPDATE session_hot h SET
        next_step = h.next_step + b.steps,
        next_position = h.next_position + b.places,
        pending = h.pending + b.places - CASE WHEN g.ord IS NULL THEN 0 ELSE 1 END,
        ready_since = coalesce(h.ready_since, b.ready_since),
        priority = coalesce(b.priority, h.priority),
        owner_boot = coalesce(g.keeper, h.owner_boot),
        token = coalesce(g.send_id, h.token),
        epoch = coalesce(g.epoch, h.epoch),
        writes = CASE WHEN g.ord IS NULL THEN h.writes ELSE 0 END,
        active = CASE WHEN g.ord IS NULL THEN h.active ELSE 1 END
    FROM bump b LEFT JOIN granted g ON g.tenant = b.tenant AND g.session_id = b.session_id
    WHERE h.tenant = b.tenant AND h.session_id = b.session_id
),
new_send AS (
    INSERT INTO sends (
        tenant, send_id, session_id, position, status, input, options, reports_to, run_id, run_path,
        run_attempt, deadline_at, alarm_at, first_step, created_at, started_at, agent_version
    )
    SELECT
        s.tenant, s.send_id, s.session_id, CASE WHEN s.placed THEN s.position END,
        CASE WHEN g.ord IS NULL THEN 'queued' ELSE 'running' END,
        s.input, s.options, s.reports_to, s.run_id, s.run_path, s.run_attempt, s.now + s.deadline_ms,
        least(s.now + s.delay_ms, s.now + s.deadline_ms), s.n, s.now,
        CASE WHEN g.ord IS NOT NULL THEN s.now END, g.agent_version
    FROM stored s LEFT JOIN granted g ON g.ord = s.ord
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT s.tenant, s.session_id, s.n, s.send_id, 'accepted', 0, $2::uuid, s.now, '{}'
    FROM stored s
)
SELECT
    s.ord, 0 AS code, CASE WHEN s.placed THEN s.position END AS position, s.n, s.now, s.rings,
    s.pool, g.epoch, g.next_seq, g.signals, g.context_version, g.spent, g.agent_version
FROM stored s LEFT JOIN granted g ON g.ord = s.ord
UNION ALL
SELECT z.ord, z.refusal, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM sized z WHERE z.refusal <> 0

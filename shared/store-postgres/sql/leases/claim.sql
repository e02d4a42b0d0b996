-- Takes the leases of a group of sessions and starts their head sends, in one statement. The commit
-- is asynchronous unless a send is resumed, which writes a step. Returns one row per item; its
-- `state` is granted, busy, suspect, idle, waits (the tenant limits its sends in flight and the
-- item has no seat) or stale (another transaction changed the session in the meantime: the caller
-- has to look again with a new snapshot). A dead boot is granted nothing.
-- All decisions are based on the locked hot rows, which are fresh even after a wait for the lock.
-- The head send is looked up in the snapshot, and is started only if it still is what the hot row
-- says it is. `ready_since` is not changed, so the update of the hot row is heap-only.
-- Takes over from a boot only if its row, locked here, says that it is dead or that its lease has
-- expired: a concurrent renewal either comes first and keeps everything, or finds the boot dead.
-- A send that is already running keeps its seat, whoever takes it over.
-- Index: session_hot_pkey, boots_pkey, sends_open, sends_pkey, seat_limits_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT i.tenant, i.session_id, i.token, i.crashes_below, i.orphans, i.seated, i.ord
    FROM unnest($3::integer[], $4::uuid[], $5::uuid[], $6::integer[], $7::boolean[], $8::boolean[])
        WITH ORDINALITY AS i (tenant, session_id, token, crashes_below, orphans, seated, ord)
),
claimer AS MATERIALIZED (
    SELECT b.dead_at IS NOT NULL AS is_dead FROM boots b WHERE b.boot_id = $2::uuid
),
live AS MATERIALIZED (
    SELECT b.boot_id FROM boots b CROSS JOIN clock c
    WHERE b.dead_at IS NULL AND b.lease_until >= c.now
    -- A boot never takes over from itself, however late it is: that would declare it dead.
    UNION ALL SELECT $2::uuid
),
hot AS MATERIALIZED (
    SELECT
        i.ord, i.token, i.crashes_below, h.tenant, h.session_id, h.owner_boot, h.epoch, h.next_seq,
        h.next_step, h.pending, h.signals, h.active, h.spent, h.context_version
    FROM item i
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    -- The test for readiness is written so that no plan searches the index of all ready sessions.
    WHERE coalesce(h.ready_since, -1) <> -1 AND h.lifecycle <> 2
      AND (
          h.owner_boot IS NULL
          OR (i.orphans AND h.owner_boot <> ALL (ARRAY(SELECT l.boot_id FROM live l)))
      )
      AND NOT EXISTS (SELECT FROM claimer b WHERE b.is_dead)
      AND (
          i.seated OR h.active = 1
          OR NOT EXISTS (SELECT FROM seat_limits l WHERE l.tenant = h.tenant)
      )
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
late AS MATERIALIZED (
    SELECT b.boot_id
    FROM boots b CROSS JOIN clock c
    WHERE b.boot_id IN (SELECT h.owner_boot FROM hot h)
      AND (b.dead_at IS NOT NULL OR b.lease_until < c.now)
    ORDER BY b.boot_id
    FOR UPDATE OF b
),
-- A boot that stopped by itself ran nothing any more: what it still owns was granted to it while it
-- stopped, and no crash is to be counted.
stopped AS MATERIALIZED (
    SELECT b.boot_id FROM boots b
    WHERE b.boot_id IN (SELECT h.owner_boot FROM hot h) AND b.dead_at = b.lease_until
),
buried AS (
    UPDATE boots b SET dead_at = c.now
    FROM late l CROSS JOIN clock c
    WHERE b.boot_id = l.boot_id AND b.dead_at IS NULL
),
free AS (
    SELECT
        h.ord, h.token, h.crashes_below, h.tenant, h.session_id, h.owner_boot, h.epoch, h.next_seq,
        h.next_step, h.pending, h.signals, h.active, h.spent, h.context_version
    FROM hot h
    WHERE h.owner_boot IS NULL
       OR h.owner_boot IN (SELECT l.boot_id FROM late l)
       -- The row of an owner that ended long ago may have been removed. That of an owner that
       -- registered after the snapshot is not visible either, but then the snapshot shows another
       -- owner.
       OR (
           NOT EXISTS (SELECT FROM boots b WHERE b.boot_id = h.owner_boot)
           AND h.owner_boot = (
               SELECT o.owner_boot FROM session_hot o
               WHERE o.tenant = h.tenant AND o.session_id = h.session_id
           )
       )
),
head AS MATERIALIZED (
    SELECT
        f.ord, f.token, f.tenant, f.session_id, f.owner_boot, f.epoch, f.next_seq, f.next_step,
        f.pending, f.signals, f.active, f.spent, f.context_version, n.send_id, n.waiting_on,
        f.active = 1 AND f.died AS orphaned,
        n.crashes + (f.active = 1 AND f.died)::integer >= f.crashes_below AS suspect
    FROM (
        SELECT
            f.*,
            f.owner_boot IS NOT NULL
                AND f.owner_boot <> ALL (ARRAY(SELECT s.boot_id FROM stopped s)) AS died
        FROM free f
    ) f
    CROSS JOIN LATERAL (
        SELECT s.send_id, s.waiting_on, s.crashes FROM sends s
        WHERE s.tenant = f.tenant AND s.session_id = f.session_id
          AND s.finished_at IS NULL AND s.position IS NOT NULL
        ORDER BY s.position
        LIMIT 1
    ) n
),
started AS (
    UPDATE sends s SET
        status = 'running',
        waiting_on = NULL,
        agent_version = coalesce(s.agent_version, (
            SELECT x.agent_version FROM sessions x
            WHERE x.tenant = k.tenant AND x.session_id = k.session_id
        )),
        attempts = s.attempts + k.orphaned::integer,
        crashes = s.crashes + k.orphaned::integer,
        alarm_at = CASE WHEN k.active = 1 THEN s.alarm_at ELSE s.deadline_at END,
        started_at = coalesce(s.started_at, c.now)
    FROM head k CROSS JOIN clock c
    WHERE s.tenant = k.tenant AND s.session_id = k.session_id AND s.send_id = k.send_id
      AND NOT k.suspect
      AND s.status = CASE k.active WHEN 0 THEN 'queued' WHEN 1 THEN 'running' ELSE 'waiting' END
    RETURNING
        k.ord, k.token, k.epoch + 1 AS epoch, k.next_seq, k.next_step,
        k.pending - (k.active = 0)::integer AS pending, k.signals, k.active, k.spent,
        k.context_version, c.now,
        CASE
            WHEN k.active = 0 THEN NULL
            WHEN k.active = 1 AND s.crashes > 0 THEN 'takeover'
            WHEN k.active = 1 THEN 'handover'
            WHEN k.waiting_on = 'retry' THEN 'retry'
            WHEN k.waiting_on = 'recovery' THEN 'resume'
            ELSE 'result'
        END AS resumed,
        {s.send}
),
-- A crash is counted even if the send is not granted, but only once: the session has no owner
-- afterwards.
died AS (
    UPDATE sends s SET crashes = s.crashes + 1, attempts = s.attempts + 1
    FROM head k
    WHERE k.suspect AND k.orphaned
      AND s.tenant = k.tenant AND s.session_id = k.session_id AND s.send_id = k.send_id
      AND s.status = 'running'
),
left_alone AS (
    UPDATE session_hot h SET owner_boot = NULL, token = NULL
    FROM head k
    WHERE k.suspect AND k.owner_boot IS NOT NULL
      AND h.tenant = k.tenant AND h.session_id = k.session_id
),
granted AS (
    UPDATE session_hot h SET
        owner_boot = $2::uuid,
        token = t.token,
        epoch = t.epoch,
        writes = 0,
        pending = t.pending,
        active = 1,
        next_step = CASE WHEN t.active = 0 THEN t.next_step ELSE t.next_step + 1 END
    FROM started t
    WHERE h.tenant = t.tenant AND h.session_id = t.session_id
),
resumed AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT
        t.tenant, t.session_id, t.next_step, t.send_id, 'resumed', t.epoch, $2::uuid, t.now,
        '{"reason":"' || t.resumed || '"}'
    FROM started t WHERE t.active <> 0
)
SELECT
    i.ord, {t.send},
    (
        SELECT a.spec FROM agents a
        WHERE a.tenant = t.tenant AND a.session_id = t.session_id AND a.version = t.agent_version
    ) AS spec,
    t.resumed, t.next_seq, t.pending, t.signals, t.context_version, t.epoch, t.spent,
    EXISTS (SELECT FROM seat_limits l WHERE l.tenant = t.tenant) AS seated,
    CASE
        WHEN t.ord IS NOT NULL THEN 'granted'
        WHEN EXISTS (SELECT FROM head k WHERE k.ord = i.ord AND k.suspect) THEN 'suspect'
        ELSE coalesce((
            SELECT CASE
                WHEN h.ready_since IS NULL OR h.lifecycle = 2 THEN 'idle'
                WHEN EXISTS (SELECT FROM claimer b WHERE b.is_dead) THEN 'busy'
                WHEN h.owner_boot = ANY (ARRAY(SELECT l.boot_id FROM live l)) THEN 'busy'
                WHEN h.owner_boot IS NOT NULL AND NOT i.orphans THEN 'busy'
                WHEN NOT i.seated AND h.active <> 1
                    AND EXISTS (SELECT FROM seat_limits l WHERE l.tenant = h.tenant) THEN 'waits'
                ELSE 'stale'
            END
            FROM session_hot h
            WHERE h.tenant = i.tenant AND h.session_id = i.session_id
        ), 'idle')
    END AS state,
    -- A reader may see the step before the server crashes, so it has to survive a crash.
    CASE WHEN t.active <> 0 THEN set_config('synchronous_commit', 'on', TRUE) END AS durable
FROM item i LEFT JOIN started t ON t.ord = i.ord

-- Like complete.sql, and also stores the outcome of earlier calls, which inbox items the messages
-- deliver, and events for webhooks. Most sends need none of these, and tables that a statement does
-- not name cost nothing.
-- Index: as in complete.sql, and tool_calls_pkey, inbox_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.boot, i.token, i.send_id, i.messages, i.refs, i.usage, i.rounds,
        i.attempts, i.status, i.stop_reason, i.output_text, i.output, i.error, i.releases,
        i.unless, i.spent, i.write, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::bigint[], $8::text[],
        $9::text[], $10::integer[], $11::integer[], $12::text[], $13::text[], $14::text[], $15::text[],
        $16::text[], $17::text[], $18::boolean[], $19::integer[], $20::bigint[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, boot, token, send_id, messages, refs, usage, rounds,
        attempts, spent, status, stop_reason, output_text, output, error, releases, unless,
        write, ord
    )
),
hot AS MATERIALIZED (
    SELECT
        i.ord, i.boot, i.send_id, i.messages, i.refs, i.usage, i.rounds, i.attempts, i.status,
        i.stop_reason, i.output_text, i.output, i.error, i.releases, i.spent,
        h.tenant, h.session_id, h.epoch, h.next_seq, h.next_step, h.pending, h.ready_since, h.pool,
        h.priority, h.context_version, h.signals, h.signals & 1 = 1 AS cancelled,
        h.signals & 1 = 0 AND h.signals & i.unless <> 0 AS undelivered
    FROM item i
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token AND h.owner_boot = i.boot AND h.writes = i.write
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
own AS MATERIALIZED (
    SELECT h.ord, h.tenant, h.session_id, s.position
    FROM hot h
    JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = h.send_id
    WHERE h.pending > 0 AND NOT h.releases AND NOT h.undelivered AND s.status = 'running'
    FOR UPDATE OF s
),
head AS MATERIALIZED (
    SELECT o.ord, o.tenant, o.session_id, n.send_id
    FROM own o
    CROSS JOIN LATERAL (
        SELECT s.send_id FROM sends s
        WHERE s.tenant = o.tenant AND s.session_id = o.session_id
          AND s.finished_at IS NULL AND s.position > o.position
        ORDER BY s.position
        LIMIT 1
    ) n
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
ended AS (
    UPDATE sends s SET
        status = CASE
            WHEN h.undelivered THEN s.status
            WHEN h.cancelled THEN 'cancelled'
            ELSE h.status
        END,
        stop_reason = CASE
            WHEN h.cancelled THEN 'cancelled'
            WHEN NOT h.undelivered THEN h.stop_reason
        END,
        output_text = CASE WHEN NOT (h.cancelled OR h.undelivered) THEN h.output_text END,
        output = CASE WHEN NOT (h.cancelled OR h.undelivered) THEN h.output END,
        error = CASE WHEN NOT (h.cancelled OR h.undelivered) THEN h.error END,
        usage = CASE WHEN h.undelivered THEN s.usage ELSE h.usage END,
        rounds = CASE WHEN h.undelivered THEN s.rounds ELSE h.rounds END,
        attempts = CASE WHEN h.undelivered THEN s.attempts ELSE h.attempts END,
        alarm_at = CASE WHEN h.undelivered THEN s.alarm_at END,
        finished_at = CASE WHEN NOT h.undelivered THEN c.now END
    FROM hot h LEFT JOIN started t ON t.ord = h.ord CROSS JOIN clock c
    WHERE s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = h.send_id
      AND s.status = 'running'
      AND (h.pending = 0 OR h.releases OR h.undelivered OR t.ord IS NOT NULL)
    RETURNING
        h.ord, h.boot, h.send_id, h.refs, h.tenant, h.session_id, h.epoch, h.next_seq,
        h.next_step, h.pending, h.ready_since, h.pool, h.priority, h.context_version, h.undelivered,
        CASE WHEN h.undelivered THEN 0 ELSE h.messages END AS messages,
        CASE WHEN h.undelivered THEN 0 ELSE h.signals & 2 END AS signals,
        h.undelivered OR t.ord IS NOT NULL AS kept,
        CASE WHEN NOT h.undelivered THEN h.spent END AS spent,
        s.status, s.stop_reason, s.position, c.now
),
moved AS (
    UPDATE session_hot h SET
        owner_boot = CASE WHEN e.kept THEN h.owner_boot END,
        token = CASE WHEN e.kept THEN h.token END,
        next_seq = e.next_seq + e.messages,
        next_step = e.next_step + (NOT e.undelivered)::integer,
        writes = h.writes + 1,
        pending = CASE WHEN t.ord IS NULL THEN e.pending ELSE e.pending - 1 END,
        active = CASE WHEN t.ord IS NULL AND NOT e.undelivered THEN 0 ELSE 1 END,
        signals = e.signals,
        spent = coalesce(e.spent, h.spent),
        ready_since = CASE WHEN e.kept THEN e.ready_since WHEN e.pending > 0 THEN e.now END
    FROM ended e LEFT JOIN started t ON t.ord = e.ord
    WHERE h.tenant = e.tenant AND h.session_id = e.session_id
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT
        e.tenant, e.session_id, e.next_step, e.send_id, 'finished', e.epoch, e.boot, e.now,
        CASE WHEN e.messages > 0 THEN '{"first_seq":' || e.next_seq || ',' ELSE '{' END
            || e.refs || '"reason":"' || e.stop_reason || '","status":"' || e.status || '"}'
    FROM ended e WHERE NOT e.undelivered
),
new_message AS (
    INSERT INTO messages (
        tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id, name, failed,
        round, asked_at_seq, epoch, created_at
    )
    SELECT
        e.tenant, e.session_id, e.next_seq + m.k, e.send_id, m.role, m.content, m.tool_calls,
        m.tool_call_id, m.name, m.failed, m.round, e.next_seq + m.k - m.asked_back, e.epoch, e.now
    FROM unnest(
        $21::bigint[], $22::bigint[], $23::text[], $24::text[], $25::text[], $26::text[],
        $27::text[], $28::boolean[], $29::integer[], $30::bigint[]
    ) AS m (ord, k, role, content, tool_calls, tool_call_id, name, failed, round, asked_back)
    JOIN ended e ON e.ord = m.ord AND NOT e.undelivered
),
new_usage AS (
    INSERT INTO usage_rows (
        tenant, session_id, send_id, round, attempt, model, usage, at, purpose
    )
    SELECT
        e.tenant, e.session_id, e.send_id, u.round, u.attempt, u.model, u.usage, e.now,
        CASE u.round WHEN -2 THEN 'fold' WHEN -3 THEN 'embed' END
    FROM unnest($31::bigint[], $32::integer[], $33::integer[], $34::text[], $35::text[])
        AS u (ord, round, attempt, model, usage)
    JOIN ended e ON e.ord = u.ord AND NOT e.undelivered
),
-- `change` and `delivery` are materialized so that the updates look up the whole key, not just its
-- prefix.
change AS MATERIALIZED (
    SELECT
        e.tenant, e.session_id, e.epoch, e.now, g.call_id, g.starts, g.waits_on, g.waited,
        g.deadline_ms, g.said
    FROM unnest(
        $36::bigint[], $37::text[], $38::integer[], $39::text[], $40::boolean[], $41::bigint[],
        $42::text[]
    ) AS g (ord, call_id, starts, waits_on, waited, deadline_ms, said)
    JOIN ended e ON e.ord = g.ord AND NOT e.undelivered
),
changed AS (
    UPDATE tool_calls l SET
        started_epoch = CASE WHEN g.starts > 0 THEN g.epoch ELSE l.started_epoch END,
        attempt = l.attempt + g.starts,
        waits_on = g.waits_on,
        deadline_at = CASE WHEN g.waited THEN g.now + g.deadline_ms ELSE l.deadline_at END,
        asked = CASE WHEN g.waits_on IS NOT NULL THEN coalesce(g.said, l.asked) ELSE l.asked END,
        result = CASE WHEN g.waits_on IS NULL THEN g.said END,
        settled_at = CASE WHEN g.waits_on IS NULL AND g.said IS NOT NULL THEN g.now END
    FROM change g
    WHERE l.tenant = g.tenant AND l.call_id = g.call_id AND l.session_id = g.session_id
      AND l.settled_at IS NULL
),
delivery AS MATERIALIZED (
    SELECT
        e.tenant, e.session_id, e.send_id, e.now, d.item_id, e.next_seq + d.message AS seq
    FROM unnest($43::bigint[], $44::text[], $45::bigint[]) AS d (ord, item_id, message)
    JOIN ended e ON e.ord = d.ord AND NOT e.undelivered
),
delivered AS (
    UPDATE inbox n SET
        fate = 'delivered', seq = d.seq, settled_at = d.now,
        send_id = coalesce(n.send_id, d.send_id)
    FROM delivery d
    WHERE n.tenant = d.tenant AND n.session_id = d.session_id AND n.item_id = d.item_id
      AND n.fate = 'pending'
),
-- For tenants with webhooks: the event that the send has ended.
noted AS (
    INSERT INTO webhook_events (tenant, source, n, type, resource, at)
    SELECT e.tenant, e.session_id, e.next_step, 'send.' || e.status, e.send_id, e.now
    FROM ended e
    WHERE NOT e.undelivered AND e.tenant = ANY ($46::integer[])
    ON CONFLICT (tenant, source, n) DO NOTHING
)
SELECT
    coalesce(e.ord, o.ord) AS ord, e.ord IS NULL AS unseen, e.undelivered,
    e.status AS stored_status, e.next_seq AS first_seq, e.next_step AS step, e.now,
    CASE WHEN NOT e.kept AND e.pending > 0 THEN e.now END AS ready_since, e.pool,
    e.priority,
    {t.send},
    (
        SELECT a.spec FROM agents a
        WHERE a.tenant = t.tenant AND a.session_id = t.session_id AND a.version = t.agent_version
    ) AS spec,
    e.next_seq + e.messages AS next_seq,
    e.pending - (t.ord IS NOT NULL)::integer AS pending, e.signals, e.context_version
FROM ended e LEFT JOIN started t ON t.ord = e.ord FULL JOIN own o ON o.ord = e.ord

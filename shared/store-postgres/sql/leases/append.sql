-- Stores rounds, or the outcome of their calls, under leases: messages, calls, usage, step and
-- sums, in one statement. The fence is the token and the write number on the hot row, and hot rows
-- are locked in key order: an item without a row in the result lost its lease or was already
-- stored, and changed nothing. Returns the signals as read from the locked row and clears all but a
-- cancel, so that none is missed.
-- A call that another transaction settled while this statement waited is left unchanged: the update
-- checks the newest version of its row.
-- Index: session_hot_pkey, sends_pkey; tool_calls_pkey and inbox_pkey for what changes there.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.boot, i.token, i.send_id, i.messages, i.kind, i.refs, i.usage,
        i.rounds, i.attempts, i.spent, i.write, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::bigint[], $8::text[],
        $9::text[], $10::text[], $11::integer[], $12::integer[], $13::text[],
        $14::bigint[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, boot, token, send_id, messages, kind, refs, usage,
        rounds, attempts, spent, write, ord
    )
),
hot AS MATERIALIZED (
    SELECT
        i.ord, i.boot, i.send_id, i.messages, i.kind, i.refs, i.usage, i.rounds, i.attempts,
        i.spent, h.tenant, h.session_id, h.epoch, h.next_seq, h.next_step, h.pending, h.signals,
        h.context_version
    FROM item i
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token AND h.owner_boot = i.boot AND h.writes = i.write
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
told AS (
    UPDATE sends s SET
        usage = h.usage, rounds = h.rounds, attempts = h.attempts,
        -- Starting more model calls is not progress.
        crashes = CASE WHEN h.rounds = s.rounds AND h.attempts > s.attempts THEN s.crashes ELSE 0 END
    FROM hot h CROSS JOIN clock c
    WHERE s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = h.send_id
      AND s.status = 'running'
    RETURNING
        h.ord, h.boot, h.send_id, h.messages, h.kind, h.refs, h.tenant, h.session_id, h.epoch,
        h.next_seq, h.next_step, h.pending, h.signals, h.context_version, h.spent, c.now
),
moved AS (
    UPDATE session_hot h SET
        next_seq = t.next_seq + t.messages, next_step = t.next_step + 1, writes = h.writes + 1,
        signals = t.signals & 1,
        spent = coalesce(t.spent, h.spent)
    FROM told t
    WHERE h.tenant = t.tenant AND h.session_id = t.session_id
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT
        t.tenant, t.session_id, t.next_step, t.send_id, t.kind, t.epoch, t.boot, t.now,
        CASE
            WHEN t.messages > 0 THEN '{"first_seq":' || t.next_seq || ','
            ELSE '{'
        END || t.refs || '}'
    FROM told t
),
new_message AS (
    INSERT INTO messages (
        tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id, name, failed,
        round, asked_at_seq, epoch, created_at
    )
    SELECT
        t.tenant, t.session_id, t.next_seq + m.k, t.send_id, m.role, m.content, m.tool_calls,
        m.tool_call_id, m.name, m.failed, m.round, t.next_seq + m.k - m.asked_back, t.epoch, t.now
    FROM unnest(
        $15::bigint[], $16::bigint[], $17::text[], $18::text[], $19::text[], $20::text[],
        $21::text[], $22::boolean[], $23::integer[], $24::bigint[]
    ) AS m (ord, k, role, content, tool_calls, tool_call_id, name, failed, round, asked_back)
    JOIN told t ON t.ord = m.ord
),
new_usage AS (
    INSERT INTO usage_rows (
        tenant, session_id, send_id, round, attempt, model, usage, at, purpose
    )
    SELECT
        t.tenant, t.session_id, t.send_id, u.round, u.attempt, u.model, u.usage, t.now,
        CASE u.round WHEN -2 THEN 'fold' WHEN -3 THEN 'embed' END
    FROM unnest($25::bigint[], $26::integer[], $27::integer[], $28::text[], $29::text[])
        AS u (ord, round, attempt, model, usage)
    JOIN told t ON t.ord = u.ord
),
-- `change` and `delivery` are materialized so that the updates look up the whole key, not just its
-- prefix.
change AS MATERIALIZED (
    SELECT
        t.tenant, t.session_id, t.epoch, t.now, g.call_id, g.starts, g.waits_on, g.waited,
        g.deadline_ms, g.said
    FROM unnest(
        $30::bigint[], $31::text[], $32::integer[], $33::text[], $34::boolean[], $35::bigint[],
        $36::text[]
    ) AS g (ord, call_id, starts, waits_on, waited, deadline_ms, said)
    JOIN told t ON t.ord = g.ord
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
        t.tenant, t.session_id, t.send_id, t.now, d.item_id, t.next_seq + d.message AS seq
    FROM unnest($37::bigint[], $38::text[], $39::bigint[]) AS d (ord, item_id, message)
    JOIN told t ON t.ord = d.ord
),
delivered AS (
    UPDATE inbox n SET
        fate = 'delivered', seq = d.seq, settled_at = d.now,
        send_id = coalesce(n.send_id, d.send_id)
    FROM delivery d
    WHERE n.tenant = d.tenant AND n.session_id = d.session_id AND n.item_id = d.item_id
      AND n.fate = 'pending'
),
new_call AS (
    INSERT INTO tool_calls (
        tenant, call_id, session_id, send_id, round, place, name, arguments, repeat, waits_on,
        approval, started_epoch, attempt, deadline_at, asked, result, requested_at, settled_at
    )
    SELECT
        t.tenant, l.call_id, t.session_id, t.send_id, l.round, l.place, l.name, l.arguments,
        l.repeat, l.waits_on, l.approval, CASE WHEN l.starts > 0 THEN t.epoch END, l.starts,
        t.now + l.deadline_ms, CASE WHEN l.waits_on IS NOT NULL THEN l.said END,
        CASE WHEN l.waits_on IS NULL THEN l.said END, t.now,
        CASE WHEN l.waits_on IS NULL AND l.said IS NOT NULL THEN t.now END
    FROM unnest(
        $40::bigint[], $41::text[], $42::integer[], $43::integer[], $44::text[], $45::text[],
        $46::text[], $47::text[], $48::integer[], $49::text[], $50::bigint[], $51::text[]
    ) AS l (
        ord, call_id, round, place, name, arguments, repeat, approval, starts, waits_on,
        deadline_ms, said
    )
    JOIN told t ON t.ord = l.ord
)
SELECT
    t.ord, t.next_seq AS first_seq, t.next_step AS step, t.now,
    t.next_seq + t.messages AS next_seq, t.pending, t.signals,
    t.context_version
FROM told t

-- Stores rounds under their leases: messages, calls, usage, step, sums; one statement. The token on
-- the hot row, locked in key order, is the fence: an item without a row in the answer lost its lease
-- and changed nothing.
-- Index: session_hot_pkey, sends_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.boot, i.token, i.send_id, i.messages, i.refs, i.usage, i.rounds,
        i.attempts, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::bigint[], $8::text[],
        $9::text[], $10::integer[], $11::integer[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, boot, token, send_id, messages, refs, usage, rounds,
        attempts, ord
    )
),
hot AS MATERIALIZED (
    SELECT
        i.ord, i.boot, i.send_id, i.messages, i.refs, i.usage, i.rounds, i.attempts,
        h.tenant, h.session_id, h.epoch, h.next_seq, h.next_step, h.pending, h.signals
    FROM item i
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token AND h.owner_boot = i.boot
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
told AS (
    UPDATE sends s SET
        usage = h.usage, rounds = h.rounds, attempts = h.attempts, crashes = 0
    FROM hot h CROSS JOIN clock c
    WHERE s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = h.send_id
      AND s.status = 'running'
    RETURNING
        h.ord, h.boot, h.send_id, h.messages, h.refs, h.tenant, h.session_id, h.epoch, h.next_seq,
        h.next_step, h.pending, h.signals, c.now
),
moved AS (
    UPDATE session_hot h SET
        next_seq = t.next_seq + t.messages, next_step = t.next_step + 1
    FROM told t
    WHERE h.tenant = t.tenant AND h.session_id = t.session_id
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT
        t.tenant, t.session_id, t.next_step, t.send_id, 'round', t.epoch, t.boot, t.now,
        CASE
            WHEN t.messages > 0 THEN '{"first_seq":' || t.next_seq || ','
            ELSE '{'
        END || t.refs || '}'
    FROM told t
),
new_message AS (
    INSERT INTO messages (
        tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id, name, round,
        asked_at_seq, epoch, created_at
    )
    SELECT
        t.tenant, t.session_id, t.next_seq + m.k, t.send_id, m.role, m.content, m.tool_calls,
        m.tool_call_id, m.name, m.round, t.next_seq + m.k - m.asked_back, t.epoch, t.now
    FROM unnest(
        $12::bigint[], $13::bigint[], $14::text[], $15::text[], $16::text[], $17::text[],
        $18::text[], $19::integer[], $20::bigint[]
    ) AS m (ord, k, role, content, tool_calls, tool_call_id, name, round, asked_back)
    JOIN told t ON t.ord = m.ord
),
new_usage AS (
    INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, usage, at)
    SELECT t.tenant, t.session_id, t.send_id, u.round, u.attempt, u.model, u.usage, t.now
    FROM unnest($21::bigint[], $22::integer[], $23::integer[], $24::text[], $25::text[])
        AS u (ord, round, attempt, model, usage)
    JOIN told t ON t.ord = u.ord
),
new_call AS (
    INSERT INTO tool_calls (
        tenant, session_id, call_id, send_id, round, place, name, arguments, result, failed,
        settled_at
    )
    SELECT
        t.tenant, t.session_id, l.call_id, t.send_id, l.round, l.place, l.name, l.arguments,
        l.result, l.failed, CASE WHEN l.result IS NOT NULL THEN t.now END
    FROM unnest(
        $26::bigint[], $27::text[], $28::integer[], $29::integer[], $30::text[], $31::text[],
        $32::text[], $33::boolean[]
    ) AS l (ord, call_id, round, place, name, arguments, result, failed)
    JOIN told t ON t.ord = l.ord
)
SELECT
    t.ord, t.next_seq AS first_seq, t.next_step AS step, t.now,
    t.next_seq + t.messages AS next_seq, t.pending, t.signals
FROM told t

-- Parks sends under their leases and gives the leases back; a send whose cancel was raised ends
-- instead. An item without a row in the answer lost its lease and changed nothing.
-- Index: session_hot_pkey, sends_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.boot, i.token, i.send_id, i.waiting_on, i.after_ms, i.usage,
        i.rounds, i.attempts, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::text[], $8::bigint[],
        $9::text[], $10::integer[], $11::integer[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, boot, token, send_id, waiting_on, after_ms, usage,
        rounds, attempts, ord
    )
),
hot AS MATERIALIZED (
    SELECT
        i.ord, i.boot, i.send_id, i.waiting_on, i.after_ms, i.usage, i.rounds, i.attempts,
        h.tenant, h.session_id, h.epoch, h.next_step, h.pending, h.pool, h.priority,
        h.signals & 1 = 1 AS cancelled
    FROM item i
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token AND h.owner_boot = i.boot
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
told AS (
    UPDATE sends s SET
        status = CASE WHEN h.cancelled THEN 'cancelled' ELSE 'waiting' END,
        waiting_on = CASE WHEN NOT h.cancelled THEN h.waiting_on END,
        stop_reason = CASE WHEN h.cancelled THEN 'cancelled' END,
        usage = h.usage, rounds = h.rounds, attempts = h.attempts,
        crashes = CASE WHEN h.cancelled THEN s.crashes ELSE 0 END,
        alarm_at = CASE WHEN NOT h.cancelled THEN least(c.now + h.after_ms, s.deadline_at) END,
        finished_at = CASE WHEN h.cancelled THEN c.now END
    FROM hot h CROSS JOIN clock c
    WHERE s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = h.send_id
      AND s.status = 'running'
    RETURNING
        h.ord, h.boot, h.send_id, h.waiting_on, h.tenant, h.session_id, h.epoch, h.next_step,
        h.pool, h.priority, h.cancelled, c.now,
        CASE WHEN h.cancelled AND h.pending > 0 THEN c.now END AS ready_since
),
moved AS (
    UPDATE session_hot h SET
        owner_boot = NULL,
        token = NULL,
        next_step = t.next_step + 1,
        active = CASE WHEN t.cancelled THEN 0 ELSE 2 END,
        signals = CASE WHEN t.cancelled THEN 0 ELSE h.signals END,
        ready_since = t.ready_since
    FROM told t
    WHERE h.tenant = t.tenant AND h.session_id = t.session_id
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT
        t.tenant, t.session_id, t.next_step, t.send_id,
        CASE WHEN t.cancelled THEN 'finished' ELSE 'waiting' END, t.epoch, t.boot, t.now,
        CASE
            WHEN t.cancelled THEN '{"reason":"cancelled","status":"cancelled"}'
            ELSE '{"reason":"' || t.waiting_on || '"}'
        END
    FROM told t
),
new_usage AS (
    INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, usage, at)
    SELECT t.tenant, t.session_id, t.send_id, u.round, u.attempt, u.model, u.usage, t.now
    FROM unnest($12::bigint[], $13::integer[], $14::integer[], $15::text[], $16::text[])
        AS u (ord, round, attempt, model, usage)
    JOIN told t ON t.ord = u.ord
)
SELECT t.ord, t.next_step AS step, t.cancelled, t.ready_since, t.pool, t.priority
FROM told t

-- Makes those sends of a group final, under their leases, that simply complete: no signal cancels
-- them or keeps them from ending, and no further send is to run under the lease, which is released.
-- An item without a row in the result is a different case, or lost its lease: complete.sql, which
-- handles every case, tells which. It stores exactly what complete.sql would.
-- Index: session_hot_pkey, sends_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.boot, i.token, i.send_id, i.messages, i.refs, i.usage, i.rounds,
        i.attempts, i.stop_reason, i.output_text, i.releases, i.unless, i.write, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::bigint[], $8::text[],
        $9::text[], $10::integer[], $11::integer[], $12::text[], $13::text[], $14::boolean[],
        $15::integer[], $16::bigint[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, boot, token, send_id, messages, refs, usage, rounds, attempts,
        stop_reason, output_text, releases, unless, write, ord
    )
),
hot AS MATERIALIZED (
    SELECT
        i.ord, h.tenant, h.session_id, h.epoch, h.next_seq, h.next_step, h.pending, h.pool,
        h.priority, h.context_version
    FROM item i
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token AND h.owner_boot = i.boot AND h.writes = i.write
      AND h.signals & (1 | i.unless) = 0 AND (h.pending = 0 OR i.releases)
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
ended AS (
    UPDATE sends s SET
        status = 'completed',
        stop_reason = i.stop_reason,
        output_text = i.output_text,
        usage = i.usage,
        rounds = i.rounds,
        attempts = i.attempts,
        alarm_at = NULL,
        finished_at = c.now
    FROM hot h JOIN item i ON i.ord = h.ord CROSS JOIN clock c
    WHERE s.tenant = i.tenant AND s.session_id = i.session_id AND s.send_id = i.send_id
      AND s.status = 'running'
    RETURNING
        h.ord, h.tenant, h.session_id, s.send_id, h.epoch, h.next_seq, h.next_step, h.pending,
        h.pool, h.priority, h.context_version, i.boot, i.messages, i.refs, i.stop_reason, c.now
),
moved AS (
    UPDATE session_hot h SET
        owner_boot = NULL,
        token = NULL,
        next_seq = e.next_seq + e.messages,
        next_step = e.next_step + 1,
        writes = h.writes + 1,
        -- The value from the locked row: after a wait for the lock, the table's checks are first
        -- applied to the new row as computed from the snapshot, where `pending` may be outdated.
        pending = e.pending,
        active = 0,
        signals = h.signals & 2,
        ready_since = CASE WHEN e.pending > 0 THEN e.now END
    FROM ended e
    WHERE h.tenant = e.tenant AND h.session_id = e.session_id
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT
        e.tenant, e.session_id, e.next_step, e.send_id, 'finished', e.epoch, e.boot, e.now,
        CASE WHEN e.messages > 0 THEN '{"first_seq":' || e.next_seq || ',' ELSE '{' END
            || e.refs || '"reason":"' || e.stop_reason || '","status":"completed"}'
    FROM ended e
),
new_message AS (
    INSERT INTO messages (
        tenant, session_id, seq, send_id, role, content, round, epoch, created_at
    )
    SELECT
        e.tenant, e.session_id, e.next_seq + m.k, e.send_id, m.role, m.content, m.round, e.epoch,
        e.now
    FROM unnest($17::bigint[], $18::bigint[], $19::text[], $20::text[], $21::integer[])
        AS m (ord, k, role, content, round)
    JOIN ended e ON e.ord = m.ord
),
new_usage AS (
    INSERT INTO usage_rows (
        tenant, session_id, send_id, round, attempt, model, usage, at, purpose
    )
    SELECT
        e.tenant, e.session_id, e.send_id, u.round, u.attempt, u.model, u.usage, e.now,
        CASE u.round WHEN -2 THEN 'fold' WHEN -3 THEN 'embed' END
    FROM unnest($22::bigint[], $23::integer[], $24::integer[], $25::text[], $26::text[])
        AS u (ord, round, attempt, model, usage)
    JOIN ended e ON e.ord = u.ord
)
SELECT
    e.ord, e.next_seq AS first_seq, e.next_step AS step, e.now,
    CASE WHEN e.pending > 0 THEN e.now END AS ready_since, e.pool, e.priority
FROM ended e

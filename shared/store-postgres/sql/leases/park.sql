-- Parks sends under their leases and releases the leases. Returns `parked`; or `woken` if a signal
-- that makes waiting unnecessary was raised: then the signals are cleared and nothing else happens;
-- or `cancelled` if a cancel was raised: then nothing happens at all, and the send has to be ended.
-- An item without a row in the result lost its lease and changed nothing.
-- Index: session_hot_pkey, sends_pkey, webhooks_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.boot, i.token, i.send_id, i.waiting_on, i.after_ms, i.unless,
        i.usage, i.rounds, i.attempts, i.spent, i.write, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::text[], $8::bigint[],
        $9::integer[], $10::text[], $11::integer[], $12::integer[], $13::text[],
        $14::bigint[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, boot, token, send_id, waiting_on, after_ms, unless,
        usage, rounds, attempts, spent, write, ord
    )
),
hot AS MATERIALIZED (
    SELECT
        i.ord, i.boot, i.send_id, i.waiting_on, i.after_ms, i.usage, i.rounds, i.attempts, i.spent,
        h.tenant, h.session_id, h.epoch, h.next_step, h.signals,
        CASE
            WHEN h.signals & 1 = 1 THEN 'cancelled'
            WHEN h.signals & i.unless <> 0 THEN 'woken'
            ELSE 'parked'
        END AS state
    FROM item i
    JOIN session_hot h ON h.tenant = i.tenant AND h.session_id = i.session_id
    WHERE h.token = i.token AND h.owner_boot = i.boot AND h.writes = i.write
    ORDER BY h.tenant, h.session_id
    FOR UPDATE OF h
),
-- Whether the send still runs is read from the newest version of its row, as in the update below.
held AS MATERIALIZED (
    SELECT h.ord, h.tenant, h.session_id, h.signals, h.state
    FROM hot h
    JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = h.send_id
    WHERE h.state <> 'parked' AND s.status = 'running'
    FOR NO KEY UPDATE OF s
),
lowered AS (
    UPDATE session_hot h SET signals = 0, writes = h.writes + 1
    FROM held u
    WHERE h.tenant = u.tenant AND h.session_id = u.session_id AND u.state = 'woken'
),
told AS (
    UPDATE sends s SET
        status = 'waiting',
        waiting_on = h.waiting_on,
        usage = h.usage, rounds = h.rounds, attempts = h.attempts, crashes = 0,
        alarm_at = least(c.now + h.after_ms, s.deadline_at)
    FROM hot h CROSS JOIN clock c
    WHERE s.tenant = h.tenant AND s.session_id = h.session_id AND s.send_id = h.send_id
      AND s.status = 'running' AND h.state = 'parked'
    RETURNING
        h.ord, h.boot, h.send_id, h.waiting_on, h.tenant, h.session_id, h.epoch, h.next_step,
        h.spent, c.now
),
moved AS (
    UPDATE session_hot h SET
        owner_boot = NULL,
        token = NULL,
        next_step = t.next_step + 1,
        writes = h.writes + 1,
        active = 2,
        ready_since = NULL,
        spent = coalesce(t.spent, h.spent)
    FROM told t
    WHERE h.tenant = t.tenant AND h.session_id = t.session_id
),
new_step AS (
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT
        t.tenant, t.session_id, t.next_step, t.send_id, 'waiting', t.epoch, t.boot, t.now,
        '{"reason":"' || t.waiting_on || '"}'
    FROM told t
),
-- For tenants with webhooks: the event that a send waits for somebody outside.
noted AS (
    INSERT INTO webhook_events (tenant, source, n, type, resource, at)
    SELECT t.tenant, t.session_id, t.next_step, 'send.waiting', t.send_id, t.now
    FROM told t
    WHERE t.waiting_on IN ('human', 'tool', 'recovery')
      -- Any webhook of the tenant will do; the condition on the id lets the plan use the whole key.
      AND EXISTS (
          SELECT FROM webhooks w
          WHERE w.tenant = t.tenant AND w.webhook_id >= '00000000-0000-0000-0000-000000000000'
      )
    ON CONFLICT (tenant, source, n) DO NOTHING
),
new_usage AS (
    INSERT INTO usage_rows (
        tenant, session_id, send_id, round, attempt, model, usage, at, purpose
    )
    SELECT
        t.tenant, t.session_id, t.send_id, u.round, u.attempt, u.model, u.usage, t.now,
        CASE u.round WHEN -2 THEN 'fold' WHEN -3 THEN 'embed' END
    FROM unnest($15::bigint[], $16::integer[], $17::integer[], $18::text[], $19::text[])
        AS u (ord, round, attempt, model, usage)
    JOIN told t ON t.ord = u.ord
)
SELECT t.ord, 'parked' AS state, t.next_step AS step, 0 AS signals
FROM told t
UNION ALL
SELECT u.ord, u.state, NULL, u.signals
FROM held u

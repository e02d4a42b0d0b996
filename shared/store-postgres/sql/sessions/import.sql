-- Creates a session with its agent, its hot row and its copied messages and lists, once per
-- idempotency key, in one statement. $32 messages are already there. No row in the result: the
-- idempotency key was already taken.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
keyed AS (
    INSERT INTO idempotency_keys (tenant, route, key, body_hash, resource, created_at)
    SELECT k.tenant, k.route, k.key, k.body_hash, $3::uuid, c.now
    FROM unnest($11::integer[], $12::text[], $13::text[], $14::bytea[])
        AS k (tenant, route, key, body_hash)
    CROSS JOIN clock c
    WHERE k.key IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING resource
),
stored AS MATERIALIZED (
    SELECT $2::integer AS tenant, $3::uuid AS session_id, c.now
    FROM clock c
    WHERE ($13::text[])[1] IS NULL OR EXISTS (SELECT FROM keyed)
),
new_session AS (
    INSERT INTO sessions (
        tenant, session_id, agent_version, agent_name, metadata, parent_session, parent_call,
        root_session, depth, created_at, updated_at
    )
    SELECT
        s.tenant, s.session_id, 1, $5::text, $6::text::jsonb, ($7::uuid[])[1], ($8::text[])[1],
        ($9::uuid[])[1], ($10::integer[])[1], s.now, s.now
    FROM stored s
),
new_agent AS (
    INSERT INTO agents (tenant, session_id, version, spec)
    SELECT s.tenant, s.session_id, 1, $4::text
    FROM stored s
),
new_hot AS (
    INSERT INTO session_hot (tenant, session_id, pool, next_seq)
    SELECT s.tenant, s.session_id, $15::text, $32::bigint + cardinality($16::uuid[]) + 1
    FROM stored s
),
new_message AS (
    INSERT INTO messages (
        tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id, name, failed,
        round, asked_at_seq, epoch, created_at
    )
    SELECT
        s.tenant, s.session_id, $32::bigint + m.seq, m.send_id, m.role, m.content, m.tool_calls, m.tool_call_id,
        m.name, m.failed, m.round, m.asked_at_seq, 0, m.created_at
    FROM stored s
    CROSS JOIN unnest(
        $16::uuid[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[],
        $22::boolean[], $23::integer[], $24::bigint[], $25::bigint[]
    ) WITH ORDINALITY AS m (
        send_id, role, content, tool_calls, tool_call_id, name, failed, round, asked_at_seq,
        created_at, seq
    )
),
new_list AS (
    INSERT INTO lists (tenant, list, next_id, version)
    SELECT s.tenant, l.list, l.next_id, l.version
    FROM stored s
    CROSS JOIN unnest($26::text[], $27::bigint[], $28::bigint[]) AS l (list, next_id, version)
),
new_entry AS (
    INSERT INTO list_entries (tenant, list, id, body)
    SELECT s.tenant, e.list, e.id, e.body
    FROM stored s
    CROSS JOIN unnest($29::text[], $30::bigint[], $31::text[]) AS e (list, id, body)
)
SELECT s.now FROM stored s

-- Creates sessions with their agents and hot rows, each once per idempotency key, in one statement.
-- An item without a row in the result: its idempotency key was already taken.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.spec, i.agent_name, i.metadata, i.pool, i.parent_session,
        i.parent_call, i.root_session, i.depth, i.key_tenant, i.route, i.key, i.body_hash, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::uuid[],
        $9::text[], $10::uuid[], $11::integer[], $12::integer[], $13::text[], $14::text[],
        $15::bytea[]
    ) WITH ORDINALITY AS i (
        tenant, session_id, spec, agent_name, metadata, pool, parent_session, parent_call,
        root_session, depth, key_tenant, route, key, body_hash, ord
    )
),
keyed AS (
    INSERT INTO idempotency_keys (tenant, route, key, body_hash, resource, created_at)
    SELECT i.key_tenant, i.route, i.key, i.body_hash, i.session_id, c.now
    FROM item i CROSS JOIN clock c
    WHERE i.key IS NOT NULL AND i.route <> 'session'
    ORDER BY i.key_tenant, i.route, i.key, i.ord
    ON CONFLICT DO NOTHING
    RETURNING resource
),
-- Names of sessions are kept as long as these.
named AS (
    INSERT INTO session_names (tenant, name, session_id)
    SELECT i.tenant, i.key, i.session_id
    FROM item i
    WHERE i.route = 'session'
    ORDER BY i.tenant, i.key, i.ord
    ON CONFLICT DO NOTHING
    RETURNING session_id
),
stored AS MATERIALIZED (
    SELECT
        i.tenant, i.session_id, i.spec, i.agent_name, i.metadata, i.pool, i.parent_session,
        i.parent_call, i.root_session, i.depth, i.ord, c.now
    FROM item i CROSS JOIN clock c
    WHERE i.key IS NULL
       OR i.session_id IN (SELECT k.resource FROM keyed k)
       OR i.session_id IN (SELECT n.session_id FROM named n)
),
new_session AS (
    INSERT INTO sessions (
        tenant, session_id, agent_version, agent_name, metadata, parent_session, parent_call,
        root_session, depth, created_at, updated_at
    )
    SELECT
        s.tenant, s.session_id, 1, s.agent_name, s.metadata::jsonb, s.parent_session, s.parent_call,
        s.root_session, s.depth, s.now, s.now
    FROM stored s
),
new_agent AS (
    INSERT INTO agents (tenant, session_id, version, spec)
    SELECT s.tenant, s.session_id, 1, s.spec
    FROM stored s
),
new_hot AS (
    INSERT INTO session_hot (tenant, session_id, pool)
    SELECT s.tenant, s.session_id, s.pool
    FROM stored s
)
SELECT s.ord, s.now FROM stored s

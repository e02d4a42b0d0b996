-- Creates timers, each once per idempotency key, in one statement. An item without a row in the
-- result: its idempotency key was already taken.
WITH item AS MATERIALIZED (
    SELECT
        i.tenant, i.timer_id, i.session_id, i.target, i.rule, i.status, i.next_n, i.due_at,
        i.fire_at, i.key_tenant, i.route, i.key, i.body_hash, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::bigint[], $10::bigint[], $11::integer[], $12::text[], $13::text[], $14::bytea[]
    ) WITH ORDINALITY AS i (
        tenant, timer_id, session_id, target, rule, status, next_n, due_at, fire_at, key_tenant,
        route, key, body_hash, ord
    )
),
keyed AS (
    INSERT INTO idempotency_keys (tenant, route, key, body_hash, resource, created_at)
    SELECT i.key_tenant, i.route, i.key, i.body_hash, i.timer_id, $1::bigint
    FROM item i
    WHERE i.key IS NOT NULL
    ORDER BY i.key_tenant, i.route, i.key, i.ord
    ON CONFLICT DO NOTHING
    RETURNING resource
),
stored AS MATERIALIZED (
    SELECT
        i.tenant, i.timer_id, i.session_id, i.target, i.rule, i.status, i.next_n, i.due_at,
        i.fire_at, i.ord
    FROM item i
    WHERE i.key IS NULL OR i.timer_id IN (SELECT k.resource FROM keyed k)
),
new_timer AS (
    INSERT INTO timers (
        tenant, timer_id, session_id, target, rule, status, next_n, due_at, fire_at, created_at,
        updated_at
    )
    SELECT
        s.tenant, s.timer_id, s.session_id, s.target, s.rule, s.status, s.next_n, s.due_at,
        s.fire_at, $1::bigint, $1::bigint
    FROM stored s
)
SELECT s.ord FROM stored s

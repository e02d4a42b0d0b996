-- Creates runs, each due at once. For a run without `created_at` in the result, the idempotency key
-- was already taken, or the session that it belongs to does not exist: then `alive` is false.
-- Index: idempotency_keys_pkey, sessions_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT
        i.tenant, i.run_id, i.name, i.status, i.spec, i.dsl_version, i.input, i.options,
        i.session_id, i.reports_to, i.depth, i.usage, i.counts, i.key_tenant, i.route, i.key,
        i.body_hash, i.ord,
        i.session_id IS NULL OR EXISTS (
            SELECT FROM sessions s WHERE s.tenant = i.tenant AND s.session_id = i.session_id
        ) AS alive
    FROM unnest(
        $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::text[],
        $9::text[], $10::uuid[], $11::text[], $12::integer[], $13::text[], $14::text[],
        $15::integer[], $16::text[], $17::text[], $18::bytea[]
    ) WITH ORDINALITY AS i (
        tenant, run_id, name, status, spec, dsl_version, input, options, session_id, reports_to,
        depth, usage, counts, key_tenant, route, key, body_hash, ord
    )
),
keyed AS (
    INSERT INTO idempotency_keys (tenant, route, key, body_hash, resource, created_at)
    SELECT i.key_tenant, i.route, i.key, i.body_hash, i.run_id, c.now
    FROM item i CROSS JOIN clock c
    WHERE i.key IS NOT NULL AND i.alive
    ORDER BY i.key_tenant, i.route, i.key, i.ord
    ON CONFLICT DO NOTHING
    RETURNING resource
),
stored AS (
    INSERT INTO runs (
        tenant, run_id, name, status, spec, dsl_version, input, options, session_id, reports_to,
        depth, attempt, usage, counts, alarm_at, created_at
    )
    SELECT
        i.tenant, i.run_id, i.name, i.status, i.spec, i.dsl_version, i.input, i.options,
        i.session_id, i.reports_to, i.depth, 1, i.usage, i.counts, c.now, c.now
    FROM item i CROSS JOIN clock c
    WHERE i.alive AND (i.key IS NULL OR i.run_id IN (SELECT k.resource FROM keyed k))
    RETURNING run_id, created_at
)
SELECT i.ord, i.alive, s.created_at
FROM item i LEFT JOIN stored s ON s.run_id = i.run_id

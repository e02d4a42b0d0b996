-- Ends attempts that are still the last ones of their deliveries, if no redelivery was requested
-- since.
-- Index: webhook_deliveries_pkey.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
item AS MATERIALIZED (
    SELECT i.tenant, i.webhook_id, i.event_id, i.attempt, i.status, i.wait_ms, i.answer, i.error, i.ord
    FROM unnest(
        $2::integer[], $3::uuid[], $4::uuid[], $5::integer[], $6::text[], $7::bigint[], $8::integer[],
        $9::text[]
    ) WITH ORDINALITY AS i (tenant, webhook_id, event_id, attempt, status, wait_ms, answer, error, ord)
),
held AS MATERIALIZED (
    SELECT i.ord, d.tenant, d.webhook_id, d.event_id
    FROM item i
    JOIN webhook_deliveries d
        ON d.tenant = i.tenant AND d.webhook_id = i.webhook_id AND d.event_id = i.event_id
    WHERE d.attempts = i.attempt AND d.status = 'pending' AND d.tried > 0
    ORDER BY d.tenant, d.webhook_id, d.event_id
    FOR UPDATE OF d
)
UPDATE webhook_deliveries d SET
    status = i.status,
    due_at = c.now + i.wait_ms,
    answer = i.answer,
    error = i.error,
    settled_at = CASE WHEN i.wait_ms IS NULL THEN c.now END
FROM held h JOIN item i ON i.ord = h.ord CROSS JOIN clock c
WHERE d.tenant = h.tenant AND d.webhook_id = h.webhook_id AND d.event_id = h.event_id
RETURNING h.ord

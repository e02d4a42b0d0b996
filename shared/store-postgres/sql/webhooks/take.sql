-- Begins attempts of due deliveries: the oldest $3 of each endpoint and $6 in all, in the order of
-- the endpoints. Those that another scheduler has locked are skipped.
-- Index: webhook_deliveries_due, webhook_deliveries_pkey.
WITH due AS MATERIALIZED (
    SELECT i.ord, f.tenant, f.webhook_id, f.event_id, f.due_at
    FROM unnest($4::integer[], $5::uuid[]) WITH ORDINALITY AS i (tenant, webhook_id, ord)
    CROSS JOIN LATERAL (
        SELECT d.tenant, d.webhook_id, d.event_id, d.due_at FROM webhook_deliveries d
        WHERE d.tenant = i.tenant AND d.webhook_id = i.webhook_id AND d.due_at <= $1::bigint
        ORDER BY d.due_at, d.event_id
        LIMIT $3::bigint
        FOR UPDATE SKIP LOCKED
    ) f
    -- This ends the loop over the endpoints before it locks more.
    LIMIT $6::bigint
),
taken AS (
    UPDATE webhook_deliveries d SET
        attempts = d.attempts + 1, tried = d.tried + 1, due_at = $2::bigint
    FROM due f
    WHERE d.tenant = f.tenant AND d.webhook_id = f.webhook_id AND d.event_id = f.event_id
    RETURNING f.ord, f.due_at AS was_due, {d.delivery}
)
SELECT t.ord, {t.delivery} FROM taken t ORDER BY t.ord, t.was_due, t.event_id

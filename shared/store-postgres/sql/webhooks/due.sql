-- Endpoints with deliveries that are due, longest due first.
-- Index: webhook_deliveries_due, once per endpoint.
SELECT {w.webhook}, f.due_at AS first_due
FROM webhooks w
CROSS JOIN LATERAL (
    SELECT d.due_at FROM webhook_deliveries d
    WHERE d.tenant = w.tenant AND d.webhook_id = w.webhook_id AND d.due_at IS NOT NULL
    ORDER BY d.due_at
    LIMIT 1
) f
WHERE w.disabled_at IS NULL AND f.due_at <= $1::bigint
  AND NOT EXISTS (SELECT FROM tenants_away a WHERE a.tenant = w.tenant)
ORDER BY f.due_at, w.tenant, w.webhook_id
LIMIT $2::bigint

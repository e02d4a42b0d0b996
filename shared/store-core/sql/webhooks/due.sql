-- Endpoints with deliveries that are due by $1, longest due first, at most $2; each takes one
-- lookup in webhook_deliveries_due.
SELECT {webhook}, first_due
FROM (
    SELECT {w.webhook}, (
        SELECT min(d.due_at) FROM webhook_deliveries d
        WHERE d.tenant = w.tenant AND d.webhook_id = w.webhook_id AND d.due_at IS NOT NULL
    ) AS first_due
    FROM webhooks w
    WHERE w.disabled_at IS NULL
) found
WHERE first_due <= $1
ORDER BY first_due, tenant, webhook_id
LIMIT $2;

-- Makes a delivery due now, with a fresh count of attempts.
-- Index: webhook_deliveries_pkey.
UPDATE webhook_deliveries d SET
    status = 'pending', tried = 0, settled_at = NULL,
    due_at = coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE d.tenant = $2::integer AND d.webhook_id = $3::uuid AND d.event_id = $4::uuid
RETURNING {d.delivery}

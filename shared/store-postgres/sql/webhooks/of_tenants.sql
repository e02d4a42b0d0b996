-- All endpoints of tenants; none is deleted until the transaction ends.
-- Index: webhooks_pkey.
SELECT {w.webhook} FROM webhooks w
WHERE w.tenant = ANY ($1::integer[])
ORDER BY w.tenant, w.webhook_id
FOR KEY SHARE

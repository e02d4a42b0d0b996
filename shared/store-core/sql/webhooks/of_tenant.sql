-- All endpoints of a tenant, which nobody deletes until the transaction ends.
SELECT {webhook} FROM webhooks WHERE tenant = $1 ORDER BY webhook_id {share};

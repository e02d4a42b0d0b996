-- All endpoints of a tenant; none is deleted until the transaction ends.
SELECT {webhook} FROM webhooks WHERE tenant = $1 ORDER BY webhook_id {share};

-- Removes events whose deliveries have been queued.
-- Index: webhook_events_pkey.
DELETE FROM webhook_events e
USING unnest($1::integer[], $2::uuid[], $3::bigint[]) AS i (tenant, source, n)
WHERE e.tenant = i.tenant AND e.source = i.source AND e.n = i.n

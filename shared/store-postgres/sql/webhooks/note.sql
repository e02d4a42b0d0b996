-- Records the events of steps whose tenants have endpoints; does nothing if they are already
-- recorded.
-- Index: webhooks_pkey.
INSERT INTO webhook_events (tenant, source, n, type, resource, at)
SELECT i.tenant, i.source, i.n, i.type, i.resource, i.at
FROM unnest(
    $1::integer[], $2::uuid[], $3::bigint[], $4::text[], $5::uuid[], $6::bigint[]
) AS i (tenant, source, n, type, resource, at)
WHERE EXISTS (SELECT FROM webhooks w WHERE w.tenant = i.tenant)
ON CONFLICT (tenant, source, n) DO NOTHING

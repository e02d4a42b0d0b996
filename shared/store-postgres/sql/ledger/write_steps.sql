-- Writes final steps whose numbers were assigned from locked hot rows, and their webhook events,
-- for tenants that have webhooks.
-- Index: webhooks_pkey.
WITH item AS MATERIALIZED (
    SELECT i.tenant, i.session_id, i.n, i.send_id, i.epoch, i.boot, i.refs, i.status
    FROM unnest(
        $2::integer[], $3::uuid[], $4::bigint[], $5::uuid[], $6::bigint[], $7::uuid[], $8::text[],
        $9::text[]
    ) AS i (tenant, session_id, n, send_id, epoch, boot, refs, status)
),
noted AS (
    INSERT INTO webhook_events (tenant, source, n, type, resource, at)
    SELECT i.tenant, i.session_id, i.n, 'send.' || i.status, i.send_id, $1::bigint
    FROM item i
    -- Any webhook of the tenant will do; the condition on the id lets the plan use the whole key.
    WHERE EXISTS (
        SELECT FROM webhooks w
        WHERE w.tenant = i.tenant AND w.webhook_id >= '00000000-0000-0000-0000-000000000000'
    )
    ON CONFLICT (tenant, source, n) DO NOTHING
)
INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
SELECT i.tenant, i.session_id, i.n, i.send_id, 'finished', i.epoch, i.boot, $1::bigint, i.refs
FROM item i

-- A tenant, unless it was deleted; until the transaction ends, nobody deletes it or creates an
-- endpoint of it.
-- Index: tenants_pkey.
SELECT t.tenant, (SELECT count(*) FROM webhooks w WHERE w.tenant = t.tenant) AS count
FROM tenants t
WHERE t.tenant = $1::integer AND t.deleted_at IS NULL
FOR UPDATE OF t

-- Deletes at most $2 entries that have expired, except those of tenants on hold. A tenant's
-- retention is always written by this program, in one format.
-- Index: memories_expires, tenants_pkey.
WITH expired AS MATERIALIZED (
    SELECT m.tenant, m.memory_id FROM memories m
    WHERE m.expires_at <= $1::bigint
      AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = m.tenant)
      AND NOT EXISTS (
          SELECT FROM tenants t
          WHERE t.tenant = m.tenant AND t.retention LIKE '%"hold":true%'
      )
    ORDER BY m.expires_at
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
)
DELETE FROM memories d USING expired o
WHERE d.tenant = o.tenant AND d.memory_id = o.memory_id

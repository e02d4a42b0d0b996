-- Deletes at most $2 entries that expired by $1, by memories_expires, except those of tenants on
-- hold. A tenant's retention is always written by this program, in one format.
DELETE FROM memories WHERE n IN (
    SELECT n FROM memories
    WHERE expires_at <= $1
      AND NOT EXISTS (SELECT 1 FROM tenants t
                      WHERE t.tenant = memories.tenant AND t.retention LIKE '%"hold":true%')
    ORDER BY expires_at
    LIMIT $2
);

-- Deletes at most $2 entries that expired before $1, by memories_expires, but not of tenants on hold: what a
-- tenant's retention is was written by this program, in one form.
DELETE FROM memories WHERE n IN (
    SELECT n FROM memories
    WHERE expires_at <= $1
      AND NOT EXISTS (SELECT 1 FROM tenants t
                      WHERE t.tenant = memories.tenant AND t.retention LIKE '%"hold":true%')
    ORDER BY expires_at
    LIMIT $2
);

-- Removes pauses that ended before $1 and for which no send waits. There are few pauses.
DELETE FROM pauses
WHERE resumed_at < $1
  AND NOT EXISTS (SELECT 1 FROM pause_waits w
                  WHERE w.pause_tenant = pauses.tenant AND w.kind = pauses.kind
                    AND w.name = pauses.name);

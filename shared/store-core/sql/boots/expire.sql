-- Removes boots that ended before $1 and own no session, at most $2.
DELETE FROM boots
WHERE boot_id IN (
    SELECT b.boot_id FROM boots b
    WHERE coalesce(b.dead_at, b.lease_until) < $1
      AND NOT EXISTS (SELECT 1 FROM session_hot h
                      WHERE h.ready_since IS NOT NULL AND h.owner_boot = b.boot_id)
    LIMIT $2
);

-- Removes boots that ended before $1 and own no session, at most $2.
DELETE FROM boots WHERE boot_id IN (
    SELECT boot_id FROM boots
    WHERE coalesce(dead_at, lease_until) < $1
      AND NOT EXISTS (SELECT 1 FROM session_hot h
                      WHERE h.ready_since IS NOT NULL AND h.owner_boot = boots.boot_id)
    ORDER BY boot_id
    LIMIT $2
);

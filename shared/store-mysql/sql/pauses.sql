-- What MySQL says differently about pauses.

-- name: pauses/save
-- Pauses something from $5 on; what is paused already stays paused since then, and keeps its reason where $4
-- is null. Index: the primary key. Assignments run from left to right: the one that others read is the last.
INSERT INTO pauses (tenant, kind, name, reason, created_at) VALUES ($1, $2, $3, $4, $5)
ON DUPLICATE KEY UPDATE
    reason = CASE WHEN pauses.resumed_at IS NULL THEN coalesce(VALUES(reason), pauses.reason)
                  ELSE VALUES(reason) END,
    created_at = CASE WHEN pauses.resumed_at IS NULL THEN pauses.created_at
                      ELSE VALUES(created_at) END,
    resumed_at = NULL;

-- name: pauses/await
-- Notes what a send waits for, in the place of what was noted before. Index: the primary key.
INSERT INTO pause_waits (tenant, send_id, pause_tenant, kind, name) VALUES ($1, $2, $3, $4, $5)
ON DUPLICATE KEY UPDATE
    pause_tenant = VALUES(pause_tenant),
    kind = VALUES(kind),
    name = VALUES(name);

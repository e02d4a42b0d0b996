-- MySQL's own statements for boots.

-- name: boots/give_back
-- Releases what a boot owns; the attempt that a running send was making counts. Sessions are locked
-- before their sends, as everywhere.
SELECT session_id FROM session_hot
WHERE owner_boot = $1 AND ready_since IS NOT NULL
ORDER BY tenant, session_id
FOR UPDATE;
UPDATE session_hot h
JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id AND s.finished_at IS NULL
            AND s.status = 'running'
SET s.attempts = s.attempts + 1
WHERE h.owner_boot = $1 AND h.ready_since IS NOT NULL;
UPDATE session_hot SET owner_boot = NULL, token = NULL
WHERE owner_boot = $1 AND ready_since IS NOT NULL;

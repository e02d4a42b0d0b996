-- What MySQL says differently about timers.

-- name: timers/due
-- Timers that are due at $1, oldest first, locked; those that another scheduler fires are left to it.
SELECT {t.timer},
       (SELECT s.status FROM sends s WHERE s.tenant = t.tenant AND s.send_id = t.last_send) AS last_status
FROM timers t
WHERE t.fire_at <= $1
ORDER BY t.fire_at, t.tenant, t.timer_id
LIMIT $2 OFFSET $3
FOR UPDATE SKIP LOCKED;

-- name: timers/lock
-- Nobody else changes the timer until the transaction ends.
SELECT next_n FROM timers WHERE tenant = $1 AND timer_id = $2 FOR UPDATE;

-- name: timers/session
-- The lifecycle of a session, which is locked, and its armed timers.
SELECT epoch FROM session_hot WHERE tenant = $1 AND session_id = $2 FOR UPDATE;
SELECT h.lifecycle,
       (SELECT count(*) FROM timers t
        WHERE t.tenant = h.tenant AND t.session_id = h.session_id AND t.status = 'armed') AS armed
FROM session_hot h
WHERE h.tenant = $1 AND h.session_id = $2;

-- name: timers/forget
-- Removes timers that ended before $1 and have no occurrences, at most $2.
DELETE FROM timers
WHERE ended_at < $1
  AND NOT EXISTS (SELECT 1 FROM timer_occurrences o
                  WHERE o.tenant = timers.tenant AND o.timer_id = timers.timer_id)
ORDER BY ended_at
LIMIT $2;

-- name: timers/forget_occurrences
-- Removes the oldest occurrences from before $1, at most $2.
DELETE FROM timer_occurrences WHERE fired_at < $1 ORDER BY fired_at LIMIT $2;

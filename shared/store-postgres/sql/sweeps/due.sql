-- Locks the sessions of due alarms, oldest first, skipping the first $3 and those that another
-- transaction has locked.
-- As it never waits for a lock, it needs no lock order; `sends` rows change only under this lock.
-- Index: sends_alarm, session_hot_pkey.
SELECT s.tenant, s.session_id, s.send_id
FROM sends s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
WHERE s.alarm_at <= $1::bigint
  AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = s.tenant)
ORDER BY s.alarm_at, s.send_id
LIMIT $2::bigint OFFSET $3::bigint
FOR UPDATE OF h SKIP LOCKED

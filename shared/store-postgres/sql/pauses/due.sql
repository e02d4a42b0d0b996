-- Makes the alarms of parked sends due, skipping those whose sessions another transaction has
-- locked. As it never waits for a lock, it needs no lock order; `sends` rows change only under this
-- lock.
-- Index: sends_pkey, session_hot_pkey.
WITH
    n AS (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now),
    held AS (
        SELECT s.tenant, s.send_id
        FROM unnest($2::integer[], $3::uuid[]) AS e (tenant, send_id)
        JOIN sends s ON s.tenant = e.tenant AND s.send_id = e.send_id
        JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
        WHERE s.status = 'waiting' AND s.waiting_on = 'retry'
        FOR UPDATE OF h SKIP LOCKED
    )
UPDATE sends s SET alarm_at = least(s.alarm_at, n.now)
FROM held, n
WHERE s.tenant = held.tenant AND s.send_id = held.send_id
  AND s.status = 'waiting' AND s.waiting_on = 'retry'

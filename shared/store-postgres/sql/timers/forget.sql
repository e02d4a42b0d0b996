-- Deletes a bounded number of timers that ended long ago and have no occurrences left.
-- Index: timers_ended, timer_occurrences_pkey.
DELETE FROM timers k
WHERE k.ctid = ANY (ARRAY(
    SELECT t.ctid FROM timers t
    WHERE t.ended_at < (
        SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            - $2::bigint
    )
    AND NOT EXISTS (
        SELECT FROM timer_occurrences o
        WHERE o.tenant = t.tenant AND o.timer_id = t.timer_id
    )
    AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = t.tenant)
    ORDER BY t.ended_at
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
))

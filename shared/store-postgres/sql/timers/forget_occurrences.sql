-- Deletes a bounded number of old occurrences.
-- Index: timer_occurrences_age.
DELETE FROM timer_occurrences k
WHERE k.ctid = ANY (ARRAY(
    SELECT o.ctid FROM timer_occurrences o
    WHERE o.fired_at < (
        SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            - $2::bigint
    )
    AND NOT EXISTS (SELECT FROM tenants_away w WHERE w.tenant = o.tenant)
    ORDER BY o.fired_at, o.n
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
))

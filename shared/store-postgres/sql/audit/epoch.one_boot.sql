-- All steps of an epoch come from one boot; for the current epoch, from the session's owner.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', v.session_id, 'epoch', v.epoch, 'boots', count(DISTINCT v.boot)
)::text AS row
FROM (
    SELECT t.tenant, t.session_id, t.epoch, t.boot FROM steps t WHERE t.epoch > 0
    UNION ALL
    SELECT h.tenant, h.session_id, h.epoch, h.owner_boot
    FROM session_hot h WHERE h.owner_boot IS NOT NULL
) v
GROUP BY v.tenant, v.session_id, v.epoch
HAVING count(DISTINCT v.boot) > 1
ORDER BY v.tenant, v.session_id, v.epoch
LIMIT (SELECT b.rows_max FROM bound b)

-- The hot row of a session that is not deleted; whether its owner's boot is alive at $3; the status
-- of its head send, by sends_open; and whether it has any open send, including delayed ones. The
-- session is locked first: the second statement sees what others committed while the first one
-- waited.
{lock_session}
SELECT {h.hot},
       EXISTS (SELECT 1 FROM boots b
               WHERE b.boot_id = h.owner_boot AND b.dead_at IS NULL AND b.lease_until >= $3) AS owner_lives,
       EXISTS (SELECT 1 FROM boots b
               WHERE b.boot_id = h.owner_boot AND b.dead_at = b.lease_until) AS owner_stopped,
       (SELECT s.status FROM sends s
        WHERE s.tenant = h.tenant AND s.session_id = h.session_id
          AND s.finished_at IS NULL AND s.position IS NOT NULL
        ORDER BY s.position LIMIT 1) AS head_status,
       EXISTS (SELECT 1 FROM sends s
               WHERE s.tenant = h.tenant AND s.session_id = h.session_id AND s.finished_at IS NULL) AS busy
FROM session_hot h
WHERE h.tenant = $1 AND h.session_id = $2 AND h.lifecycle <> 2;

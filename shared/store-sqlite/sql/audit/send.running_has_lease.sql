-- Running sends whose session is held by a boot that ended before $2, or that is not known. A send
-- that was given back is ready, and how long it has been so is not recorded.
SELECT json_object('session', 'ses_' || lower(hex(s.session_id)),
                   'send', 'snd_' || lower(hex(s.send_id)),
                   'owner', 'bot_' || lower(hex(h.owner_boot)))
FROM sends s
JOIN session_hot h ON h.tenant = s.tenant AND h.session_id = s.session_id
LEFT JOIN boots b ON b.boot_id = h.owner_boot
WHERE s.finished_at IS NULL AND s.status = 'running' AND h.owner_boot IS NOT NULL
  AND coalesce(min(coalesce(b.dead_at, b.lease_until), b.lease_until) < $2, 1)
ORDER BY s.tenant, s.session_id, s.send_id
LIMIT $1;

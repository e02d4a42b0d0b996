-- How far the erasure of a session has got. Locked, so that only one scheduler continues it.
SELECT e.deleted_at, e.seq, e.send_id
FROM erasures e
JOIN session_hot h ON h.tenant = e.tenant AND h.session_id = e.session_id
WHERE e.tenant = $1 AND e.session_id = $2 AND h.lifecycle = 2
{lock};

-- An item has its time of settling exactly if it has its fate. An item that was delivered to an
-- active send names its message, which exists unless it was pruned; no other item names one.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', n.session_id, 'item', n.item_id, 'fate', n.fate, 'seq', n.seq
)::text AS row
FROM inbox n
LEFT JOIN messages m ON m.tenant = n.tenant AND m.session_id = n.session_id AND m.seq = n.seq
LEFT JOIN sessions s ON s.tenant = n.tenant AND s.session_id = n.session_id
WHERE (n.settled_at IS NULL) <> (n.fate = 'pending')
   OR (n.seq IS NOT NULL) <> (n.fate = 'delivered' AND n.mode <> 'coalesce')
   OR (n.seq >= s.first_seq AND m.seq IS NULL)
ORDER BY n.tenant, n.session_id, n.n
LIMIT (SELECT b.rows_max FROM bound b)

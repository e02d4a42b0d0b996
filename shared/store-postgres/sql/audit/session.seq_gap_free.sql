-- Messages are numbered without gaps from the session's first_seq, which is 1 unless it was pruned,
-- up to, but not including, the hot row's next_seq. Tombstones are not checked.
WITH bound AS MATERIALIZED (
    SELECT
        coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
        $2::bigint AS takeover_ms, $3::bigint AS rows_max
)
SELECT json_build_object(
    'session', h.session_id, 'messages', count(m.seq), 'first', min(m.seq), 'last', max(m.seq),
    'next_seq', h.next_seq
)::text AS row
FROM session_hot h
LEFT JOIN sessions s ON s.tenant = h.tenant AND s.session_id = h.session_id
LEFT JOIN messages m ON m.tenant = h.tenant AND m.session_id = h.session_id
WHERE h.lifecycle <> 2
GROUP BY h.tenant, h.session_id, h.next_seq, s.first_seq
HAVING count(m.seq) <> h.next_seq - coalesce(s.first_seq, 1)
    OR min(m.seq) <> coalesce(s.first_seq, 1)
    OR max(m.seq) <> h.next_seq - 1
ORDER BY h.tenant, h.session_id
LIMIT (SELECT b.rows_max FROM bound b)

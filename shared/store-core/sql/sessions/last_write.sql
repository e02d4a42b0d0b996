-- The last step of a send under a grant that still holds and whose last write has this number, with
-- the numbers of the hot row and the signals that stand for pending inbox items.
SELECT h.next_seq, h.pending, h.signals, h.context_version,
       coalesce((SELECT max(CASE n.mode WHEN 'interrupt' THEN 6 ELSE 2 END) FROM inbox n
                 WHERE n.tenant = $1 AND n.session_id = $2 AND n.fate = 'pending'), 0) AS inbox_signals,
       t.n, t.at, CAST(t.refs ->> 'first_seq' AS INTEGER) AS first_seq
FROM session_hot h
JOIN steps t ON t.tenant = h.tenant AND t.session_id = h.session_id
WHERE h.tenant = $1 AND h.session_id = $2 AND h.token = $3 AND h.owner_boot = $4
  AND h.writes = $6 + 1
  AND t.send_id = $5 AND t.epoch = h.epoch AND t.kind <> 'resumed'
ORDER BY t.n DESC
LIMIT 1;

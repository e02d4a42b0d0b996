-- Marks the items of the JSON array $4 as delivered at $5, as messages of the send $3.
UPDATE inbox AS i
SET fate = 'delivered', seq = e.value ->> 'seq', settled_at = $5, send_id = coalesce(i.send_id, $3)
FROM json_each($4) e
WHERE i.tenant = $1 AND i.session_id = $2 AND i.item_id = e.value ->> 'item_id'
  AND i.fate = 'pending';

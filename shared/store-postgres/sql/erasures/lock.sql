-- Locks the erasure of a session, unless another transaction is removing a page of it.
-- Index: erasures_pkey, session_hot_pkey.
SELECT e.deleted_at, e.seq, e.send_id
FROM erasures e
WHERE e.tenant = $1::integer AND e.session_id = $2::uuid
  AND EXISTS (
      SELECT FROM session_hot h
      WHERE h.tenant = $1::integer AND h.session_id = $2::uuid AND h.lifecycle = 2
  )
FOR UPDATE OF e SKIP LOCKED

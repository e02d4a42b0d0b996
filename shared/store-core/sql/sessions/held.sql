-- The fence: counts a write in the hot row if its token, its owner and the number of its writes are
-- the lease's and the send runs in it. What the write turns out to be is saved with the row later.
UPDATE session_hot
SET writes = writes + 1
WHERE tenant = $1 AND session_id = $2 AND token = $3 AND owner_boot = $4 AND writes = $6
  AND EXISTS (
      SELECT 1 FROM sends s
      WHERE s.tenant = $1 AND s.send_id = $5 AND s.session_id = $2 AND s.status = 'running'
  )
RETURNING tenant, session_id, owner_boot, token, epoch, next_seq, next_position,
          next_step, pending, signals, ready_since, lifecycle, pool, priority, spent, writes, context_version,
          (SELECT s.deadline_at FROM sends s WHERE s.tenant = $1 AND s.send_id = $5);

-- Removes the holds of a blob whose owner does not exist any more. Index: the primary key.
DELETE FROM blob_holds
WHERE tenant = $1 AND sha256 = $2 AND held_at < $3
  AND NOT (kind = 0 AND EXISTS (
      SELECT 1 FROM sessions s
      WHERE s.tenant = blob_holds.tenant AND s.session_id = blob_holds.owner
  ))
  AND NOT (kind = 1 AND EXISTS (
      SELECT 1 FROM timers t WHERE t.tenant = blob_holds.tenant AND t.timer_id = blob_holds.owner
  ))
  AND NOT (kind = 2 AND EXISTS (
      SELECT 1 FROM runs r WHERE r.tenant = blob_holds.tenant AND r.run_id = blob_holds.owner
  ));

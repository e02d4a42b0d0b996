-- Stores what became of calls at $4, from the JSON array $3, which names each call once. A settled
-- call is left unchanged. Afterwards each call waits for whom the array names, or for nobody. The
-- rows are looked up by key first: a join with the array alone would read all calls of the tenant.
UPDATE tool_calls AS c
SET waits_on = e.value ->> 'waits_on',
    deadline_at = CASE WHEN e.value ->> 'waits_on' IS NULL THEN c.deadline_at
                       ELSE e.value ->> 'deadline_at' END,
    started_epoch = coalesce(e.value ->> 'started_epoch', c.started_epoch),
    attempt = c.attempt + (e.value ->> 'started_epoch' IS NOT NULL),
    asked = coalesce(e.value ->> 'asked', c.asked),
    result = e.value ->> 'result',
    settled_at = CASE WHEN e.value ->> 'result' IS NOT NULL THEN $4 END
FROM json_each($3) e
WHERE c.rowid IN (
          SELECT t.rowid
          FROM json_each($3) w
          CROSS JOIN tool_calls t ON t.tenant = $1 AND t.call_id = w.value ->> 'call_id'
          WHERE t.session_id = $2 AND t.result IS NULL
      )
  AND c.call_id = e.value ->> 'call_id';

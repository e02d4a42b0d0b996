-- Removes timers that ended before $1 and have no occurrences left, at most $2.
DELETE FROM timers WHERE rowid IN (
    SELECT t.rowid FROM timers t
    WHERE t.ended_at < $1
      AND NOT EXISTS (SELECT 1 FROM timer_occurrences o
                      WHERE o.tenant = t.tenant AND o.timer_id = t.timer_id)
    LIMIT $2
);

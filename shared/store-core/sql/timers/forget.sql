-- Removes timers that ended before $1 and have no occurrences left, at most $2.
DELETE FROM timers WHERE rowid IN (
    SELECT rowid FROM timers
    WHERE ended_at < $1
      AND NOT EXISTS (SELECT 1 FROM timer_occurrences o
                      WHERE o.tenant = timers.tenant AND o.timer_id = timers.timer_id)
    ORDER BY ended_at
    LIMIT $2
);

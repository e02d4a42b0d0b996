-- Writes what a timer does and when.
UPDATE timers SET target = $3, rule = $4 WHERE tenant = $1 AND timer_id = $2;

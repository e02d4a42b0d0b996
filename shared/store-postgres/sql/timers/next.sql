-- When the next timer after $1 is due.
-- Index: timers_due.
SELECT t.fire_at FROM timers t WHERE t.fire_at > $1::bigint ORDER BY t.fire_at LIMIT 1

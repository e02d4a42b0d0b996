-- Locks the timer until the transaction ends.
SELECT next_n FROM timers WHERE tenant = $1 AND timer_id = $2 {lock};

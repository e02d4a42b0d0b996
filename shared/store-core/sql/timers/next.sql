-- When the next timer after $1 is due, by timers_due.
SELECT min(fire_at) FROM timers WHERE fire_at > $1;

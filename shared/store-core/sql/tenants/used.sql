-- Whether a tenant has sessions or runs, or timers that may still start some, by their primary keys.
SELECT EXISTS (SELECT 1 FROM sessions WHERE tenant = $1)
    OR EXISTS (SELECT 1 FROM runs WHERE tenant = $1)
    OR EXISTS (SELECT 1 FROM timers WHERE tenant = $1 AND ended_at IS NULL) AS used;
